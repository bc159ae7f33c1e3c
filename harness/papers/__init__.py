"""The published numbers, the papers' claims, the audit. Imports evaluation and below."""

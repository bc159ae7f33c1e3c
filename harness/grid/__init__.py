"""From config to specs: methods, columns, artefacts, the plan. Imports training and below."""

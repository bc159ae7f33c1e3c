"""From a network to records, and from records to numbers. Imports grid and below."""

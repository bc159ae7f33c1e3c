"""What everything stands on: errors, files, identity, paths, config, progress. Imports no room."""

"""The base of all rooms: errors, files, identity, paths, config, progress. Imports no room."""

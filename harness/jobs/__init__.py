"""Commands that work: plan and bill, train, evaluate, how a job starts. Imports all rooms."""

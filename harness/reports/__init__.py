"""What readers look at: tables, figures, the page, RobustBench's form. Imports papers and below."""

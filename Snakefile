# Rebuild everything at the default scale:   snakemake --cores 2
# One artefact by name:                      snakemake --cores 2 plusplus_table1
# The same at another scale, by its path:    snakemake --cores 8 reports/paper/tables/plusplus_table1.csv
include: "workflow/common.smk"


# Only used with --sdm apptainer (docs/installing.md).
container: "generalist-bench.sif"


rule all:
    default_target: True
    input:
        f"reports/{SCALE}/made_of.sha256",


include: "workflow/rules/data.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/evaluate.smk"
include: "workflow/rules/report.smk"

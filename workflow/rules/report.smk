# From records to what readers look at. Seconds each, without torch: on a cluster they run beside Snakemake,
# since submitting one would take longer than making it.
localrules:
    table,
    figure,
    page,
    manifest,
    verdicts,
    robustbench,
    board,


rule table:
    input:
        lambda wildcards: current(wildcards.scale, wildcards.artefact),
    output:
        multiext("reports/{scale}/tables/{artefact}", ".csv", ".md", ".tex", ".json"),
    log:
        "results/logs/table/{scale}-{artefact}.log",
    benchmark:
        "results/benchmarks/table/{scale}-{artefact}.tsv"
    conda:
        "../../environment.yml"
    params:
        python=PYTHON,
        grid=GRID,
    shell:
        "{params.python:q} -m harness tables --grid {params.grid:q} --scale {wildcards.scale:q} "
        "--artefact {wildcards.artefact:q} > {log:q} 2>&1"


rule figure:
    input:
        lambda wildcards: current(wildcards.scale, wildcards.artefact),
    output:
        multiext(
            "reports/{scale}/figures/{artefact}",
            ".csv",
            ".pdf",
            ".png",
            ".svg",
            ".json",
        ),
    log:
        "results/logs/figure/{scale}-{artefact}.log",
    benchmark:
        "results/benchmarks/figure/{scale}-{artefact}.tsv"
    conda:
        "../../environment.yml"
    params:
        python=PYTHON,
        grid=GRID,
    shell:
        "{params.python:q} -m harness figures --grid {params.grid:q} --scale {wildcards.scale:q} "
        "--artefact {wildcards.artefact:q} > {log:q} 2>&1"


rule page:
    input:
        lambda wildcards: current(wildcards.scale, "index"),
    output:
        "reports/{scale}/index.html",
    log:
        "results/logs/page/{scale}.log",
    benchmark:
        "results/benchmarks/page/{scale}.tsv"
    conda:
        "../../environment.yml"
    params:
        python=PYTHON,
        grid=GRID,
    shell:
        "{params.python:q} -m harness page --grid {params.grid:q} --scale {wildcards.scale:q} > {log:q} 2>&1"


# All that the default target wants, and the checksums of what it was made of.
rule manifest:
    input:
        current(SCALE, "manifest"),
    output:
        f"reports/{SCALE}/made_of.sha256",
    log:
        f"results/logs/manifest/{SCALE}.log",
    benchmark:
        f"results/benchmarks/manifest/{SCALE}.tsv"
    conda:
        "../../environment.yml"
    params:
        python=PYTHON,
        grid=GRID,
        scale=SCALE,
    shell:
        "{params.python:q} -m harness manifest --grid {params.grid:q} --scale {params.scale:q} > {log:q} 2>&1"


# One named target per artefact: `snakemake --cores 2 plusplus_table1`.
for name in plan(SCALE).artefacts:

    rule:
        name:
            name
        input:
            artefact_files(SCALE, name),


# A mistyped artefact: Snakemake would only say that no rule makes it; this names the nearest one.
rule unknown_artefact:
    input:
        lambda wildcards: artefact(SCALE, wildcards.name),
    output:
        r"{name,\w+}",


# The papers' claims, judged: `snakemake --cores 2 claims`.
rule verdicts:
    input:
        lambda wildcards: current(wildcards.scale, "claims"),
    output:
        multiext("reports/{scale}/claims", ".csv", ".md"),
    log:
        "results/logs/claims/{scale}.log",
    benchmark:
        "results/benchmarks/claims/{scale}.tsv"
    conda:
        "../../environment.yml"
    params:
        python=PYTHON,
        grid=GRID,
    shell:
        "{params.python:q} -m harness claims --grid {params.grid:q} --scale {wildcards.scale:q} > {log:q} 2>&1"


rule claims:
    input:
        f"reports/{SCALE}/claims.csv",


# Every model with an AutoAttack number, in RobustBench's form.
rule robustbench:
    input:
        lambda wildcards: current(SCALE, "robustbench"),
    output:
        reports_of(SCALE)["robustbench"][1],
    log:
        f"results/logs/robustbench/{SCALE}.log",
    benchmark:
        f"results/benchmarks/robustbench/{SCALE}.tsv"
    conda:
        "../../environment.yml"
    params:
        python=PYTHON,
        grid=GRID,
        scale=SCALE,
    shell:
        "{params.python:q} -m harness robustbench --grid {params.grid:q} --scale {params.scale:q} > {log:q} 2>&1"


# Ours, other people's and published models on one sortable page: `snakemake --cores 2 leaderboard`.
rule board:
    input:
        lambda wildcards: leaderboard_files(wildcards.scale),
    output:
        "reports/{scale}/leaderboard.html",
    log:
        "results/logs/leaderboard/{scale}.log",
    benchmark:
        "results/benchmarks/leaderboard/{scale}.tsv"
    conda:
        "../../environment.yml"
    params:
        python=PYTHON,
        grid=GRID,
    shell:
        "{params.python:q} -m harness leaderboard --grid {params.grid:q} --scale {wildcards.scale:q} > {log:q} 2>&1"


rule leaderboard:
    input:
        f"reports/{SCALE}/leaderboard.html",

# One job per model, for all that any artefact wants to know of it: starting torch costs more than
# many an attack at smoke scale. Records that exist already are not computed again.
rule evaluate:
    input:
        model=str(paths.model(RESULTS, "{run}")),
        description=str(paths.description(RESULTS, "{run}")),
        data=lambda wildcards: [set_report(name) for name in sets_probed(wildcards.run)],
    output:
        str(paths.records(RESULTS, "{run}-{hash}")),
    log:
        "results/logs/evaluate/{run}-{hash}.log",
    benchmark:
        "results/benchmarks/evaluate/{run}-{hash}.tsv"
    priority: 10
    conda:
        "../../environment.yml"
    threads: plan(SCALE).scale["threads"]
    params:
        python=PYTHON,
        grid=GRID,
        device=DEVICE,
        scale=lambda wildcards: scale_of(wildcards.run),
    shell:
        "{params.python:q} -m harness.start evaluate --grid {params.grid:q} --scale {params.scale} --run {wildcards.run} "
        "--threads {threads} --device {params.device:q} > {log} 2>&1"

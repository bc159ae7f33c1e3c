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
    resources:
        **asks(MACHINE.evaluate),
    params:
        python=PYTHON,
        grid=GRID,
        device=DEVICE,
        scale=lambda wildcards: scale_of(wildcards.run),
    shell:
        # `exec`: a signal of the batch system's must not end a shell before the job has answered it.
        "exec {params.python} -m harness.start --gpus {resources.gpu} evaluate --grid {params.grid:q} "
        "--scale {params.scale} --run {wildcards.run} "
        "--threads {threads} --device {params.device} > {log} 2>&1"

# One job per model, for all that any artefact wants to know of it: starting torch costs more than
# many an attack at smoke scale. Records that exist already are not computed again. Where the scale (or
# --config jobs=K) shares the work among K jobs, this one only joins what they wrote, and checks.
rule evaluate:
    input:
        model=str(paths.model(RESULTS, "{run}")),
        description=str(paths.description(RESULTS, "{run}")),
        parts=lambda wildcards: parts_of(wildcards.run, wildcards.hash),
    output:
        str(paths.records(RESULTS, "{run}-{hash}")),
    log:
        "results/logs/evaluate/{run}-{hash}.log",
    priority: 10
    conda:
        "../../environment.yml"
    threads: plan(SCALE).scale["threads"]
    resources:
        **asks(MACHINE.evaluate),
    params:
        python=PYTHON,
        device=DEVICE,
        spec=lambda wildcards: evaluation_of(wildcards.run),
        part=[],
    shell:
        # `exec`: a signal of the batch system's must not end a shell before the job has answered it.
        "exec {params.python:q} -m harness start --gpus {resources.gpu:q} evaluate "
        "--spec {params.spec:q} {params.part:q} "
        "--threads {threads:q} --device {params.device:q} > {log:q} 2>&1"


# Every K-th batch of a model. Its batches are no outputs: those of a killed job remain.
use rule evaluate as evaluate_part with:
    input:
        model=str(paths.model(RESULTS, "{run}")),
        description=str(paths.description(RESULTS, "{run}")),
    output:
        str(paths.part(RESULTS, "{run}-{hash}", "{part}", "{parts}")),
    log:
        "results/logs/evaluate_part/{run}-{hash}-{part}-of-{parts}.log",
    params:
        part=lambda wildcards: ["--part", f"{wildcards.part}/{wildcards.parts}"],

# One job per model. Its id is in the path: editing a hyper-parameter makes another path, editing a
# comment makes none. The checkpoint is not an output: Snakemake deletes the outputs of failed jobs.
rule train:
    input:
        parents=lambda wildcards: parents_of(wildcards.run),
        states=lambda wildcards: states_of(wildcards.run),
    output:
        model=str(paths.model(RESULTS, "{run}")),
        description=str(paths.description(RESULTS, "{run}")),
        history=str(paths.history(RESULTS, "{run}")),
        trace=str(paths.trace(RESULTS, "{run}")),
    log:
        "results/logs/train/{run}.log",
    conda:
        "../../environment.yml"
    threads: lambda wildcards: plan(SCALE).scale["threads"] * processes(wildcards.run)
    resources:
        **asks(MACHINE.train),
    params:
        threads=lambda wildcards, threads: max(1, threads // processes(wildcards.run)),
        python=PYTHON,
        device=DEVICE,
        shared=lambda wildcards: plan_of(wildcards.run).data_parallel(wildcards.run),
        spec=lambda wildcards: plan_of(wildcards.run).training_spec(wildcards.run),
    shell:
        # `exec`: a signal of the batch system's must not end a shell before the job has answered it.
        "exec {params.python:q} -m harness start --gpus {resources.gpu:q} train "
        "--spec {params.spec:q} "
        "--data-parallel {params.shared:q} "
        "--threads {params.threads:q} --device {params.device:q} > {log:q} 2>&1"


# The epochs that several runs share: it leaves a state, from which they start. docs/decisions/0017-trunks.md
use rule train as trunk with:
    input:
        parents=lambda wildcards: parents_of(wildcards.run),
        states=lambda wildcards: states_of(wildcards.run, int(wildcards.end)),
    output:
        str(paths.state(RESULTS, "{run}", "{end}")),
    log:
        "results/logs/trunk/{run}-{end}.log",
    params:
        spec=lambda wildcards: plan_of(wildcards.run).training_spec(
            wildcards.run, int(wildcards.end)
        ),

# Fetch and verify what a scale needs: `snakemake --cores 2 data`. What cannot be had is said with the
# file and the folder that would help. On a cluster this runs beside Snakemake: nodes that compute seldom
# reach the network. No training depends on it, since each obtains what is not there yet: if one did, to
# fetch a set for a new row would, to Snakemake, be news for every row that was ever trained on it.
localrules:
    fetch,
    data,


rule fetch:
    output:
        "results/data/{set}.txt",
    log:
        "results/logs/fetch/{set}.log",
    benchmark:
        "results/benchmarks/fetch/{set}.tsv"
    priority: 100
    conda:
        "../../environment.yml"
    params:
        python=PYTHON,
    shell:
        "{params.python:q} -m harness fetch {wildcards.set:q} > {log:q} 2>&1 && cp {log:q} {output:q}"


rule data:
    input:
        [f"results/data/{name}.txt" for name in plan(SCALE).data_sets],
    log:
        "results/logs/data.log",
    conda:
        "../../environment.yml"
    shell:
        "cat {input:q} | tee {log:q}"

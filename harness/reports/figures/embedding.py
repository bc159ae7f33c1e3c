"""t-SNE (van der Maaten and Hinton 2008) of the learners' adversarial images, moment by moment."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from harness.reports.figures.source import Source
from harness.reports.figures.style import MARKERS, panels, pretty
from harness.reports.palette import PALETTE

_PERPLEXITY = 30
_ACROSS = 4


def draw(source: Source) -> tuple[Figure, pd.DataFrame]:
    (row,) = source.artefact.rows
    kept = source.trace(row.runs[0])
    epochs = sorted({int(name.partition(":")[0]) for name in kept})
    figure, grid = panels(len(epochs), _ACROSS, (2.8, 2.7))
    drawn = []
    for axes, epoch in zip(grid.flat, epochs, strict=False):
        own = {name.partition(":")[2]: kept[name] for name in kept if name.startswith(f"{epoch}:")}
        place = embedded(np.concatenate(list(own.values())))
        names = np.repeat(list(own), [len(images) for images in own.values()])
        for number, name in enumerate(own):
            label = f"from the {pretty(source.plan.label(name))} learner"
            style = {"label": label, "color": PALETTE[number], "marker": MARKERS[number]}
            axes.scatter(*place[names == name].T, s=7, alpha=0.7, linewidths=0, **style)
        axes.set_title(f"epoch {epoch}", loc="left")
        axes.set(xticks=[], yticks=[])
        learner = {"epoch": epoch, "learner": names, "run": row.runs[0]}
        drawn.append(pd.DataFrame({**learner, "x": place[:, 0], "y": place[:, 1]}))
    series = grid[0, 0].get_legend_handles_labels()
    figure.legend(*series, loc="outside right center", markerscale=2)
    return figure, pd.concat(drawn)


def embedded(images: np.ndarray) -> np.ndarray:
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    flat = images.reshape(len(images), -1).astype(np.float32) / 255
    perplexity = min(_PERPLEXITY, (len(flat) - 1) / 3)
    with threadpool_limits(1):  # sums in another order end in another picture
        return TSNE(perplexity=perplexity, init="pca", random_state=0).fit_transform(flat)

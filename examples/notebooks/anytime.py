# ---
# jupyter:
#   jupytext:
#     formats: py:percent
#   kernelspec:
#     display_name: Python 3
#     name: python3
# ---

# %% [markdown]
# # Reading a journal: any-time accuracy
#
# A run writes everything that was asked into `journal.jsonl`. This notebook makes two runs, computes A_AUC from the
# journal by hand, and looks at what happens to each class.

# %%
import json

import matplotlib.pyplot as plt
import numpy as np

from iblurry import Experiment, run

results = {name: run(Experiment.of(name, "digits", seed=1, share=0.5), out="runs") for name in ("er", "clib")}
for name, result in results.items():
    print(name, f"A_AUC {100 * result.metrics.a_auc:.1f} %, A_last {100 * result.metrics.a_last:.1f} %")

# %% [markdown]
# ## A_AUC by hand
#
# Each line of kind `query` has the right answers of each class met so far. A_AUC is the mean accuracy over all queries.


# %%
def queries(result):
    records = map(json.loads, (result.folder / "journal.jsonl").read_text().splitlines())
    return [record for record in records if record["kind"] == "query"]


for name, result in results.items():
    curve = [sum(query["correct"]) / sum(query["total"]) for query in queries(result)]
    print(name, f"{100 * np.mean(curve):.1f} % over {len(curve)} queries")
    assert np.isclose(np.mean(curve), result.metrics.a_auc)

# %% [markdown]
# ## The classes one by one
#
# A line begins where its class was met. A fall is forgetting.

# %%
figure, panels = plt.subplots(1, 2, figsize=(9, 3), sharey=True)
for axes, (name, result) in zip(panels, results.items(), strict=True):
    asked = queries(result)
    for row in range(len(asked[-1]["total"])):
        met = [query for query in asked if len(query["total"]) > row]
        axes.plot([query["at"] for query in met], [query["correct"][row] / query["total"][row] for query in met])
    axes.set(title=name, xlabel="samples", ylim=(0, 1))
panels[0].set_ylabel("accuracy of each class")
figure.savefig("classes.png", dpi=150, bbox_inches="tight")

# %% [markdown]
# ## Worst cases
#
# `wc_acc` and `min_acc` say how bad the worst moment was; `forgetting` how far classes fell from their best.

# %%
for name, result in results.items():
    print(
        name, {metric: round(100 * result.metric(metric), 1) for metric in ("aaa", "min_acc", "wc_acc", "forgetting")}
    )

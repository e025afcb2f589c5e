# ---
# jupyter:
#   jupytext:
#     formats: py:percent
#   kernelspec:
#     display_name: Python 3
#     name: python3
# ---

# %% [markdown]
# # Watching a network forget
#
# Plain SGD on a class-incremental stream forgets what it has learnt as soon as the next classes come. Experience replay
# remembers.

# %%
import matplotlib.pyplot as plt
import numpy as np

from iblurry import IBlurry, Learner, Nothing, StreamIterator, er, load

digits = load("digits")
order = IBlurry(tasks=5, disjoint=100, blur=0).order(digits, seed=1)
print("classes of each task:", [sorted({digits.classes[digits.train.labels[i]] for i in task}) for task in order.tasks])

# %% [markdown]
# ## Two learners, one stream
#
# The first is ER without rehearsal: `Nothing` joins its batches. Whatever else they do is the same.

# %%
first_task = np.isin(digits.test.labels, digits.train.labels[order.tasks[0]])
old_images = digits.test.images[first_task]
old_labels = np.array(digits.classes)[digits.test.labels[first_task]]


def accuracy_on_the_first_task(method):
    learner, curve = Learner(method, image=(1, 8, 8), memory=100, network="mlp", seed=1), []
    for seen, sample in enumerate(StreamIterator(digits, order), start=1):
        learner.observe(sample.image, sample.label)
        if seen % 70 == 0:
            curve.append((seen, np.mean(np.array(learner.predict(old_images)) == old_labels)))
    return np.array(curve)


forgetful = accuracy_on_the_first_task(er(rehearsal=Nothing()))
replaying = accuracy_on_the_first_task("er")

# %% [markdown]
# ## What is left of the first task

# %%
figure, axes = plt.subplots(figsize=(6, 3))
axes.plot(*forgetful.T, label="no rehearsal")
axes.plot(*replaying.T, label="experience replay")
for end in order.ends[:-1]:
    axes.axvline(end, color="grey", linewidth=0.5)
axes.set(xlabel="samples", ylabel="accuracy on the first task's classes", ylim=(0, 1))
axes.legend()
figure.savefig("forgetting.png", dpi=150, bbox_inches="tight")

# %%
print(f"at the end: {forgetful[-1, 1]:.2f} without rehearsal, {replaying[-1, 1]:.2f} with it")
assert replaying[-1, 1] > forgetful[-1, 1]

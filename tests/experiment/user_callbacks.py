"""Callbacks as a user would write them, in a module that worker processes can import."""

from __future__ import annotations

from iblurry import Callback


class ReadEverything(Callback):
    """Asks and reads wherever it is called, and logs what it found."""

    seen = 0  # its state

    def look(self, run, hook):
        self.seen += len(run.records) + run.task
        if run.position % 20 == 0 or hook in ("query", "task_end"):  # a fresh network each time for some methods
            self.seen += run.learner.logits(run.dataset.test.images[:3]).argmax(1).sum().item()
        run.log(f"{hook}.seen", self.seen)
        run.log(f"{hook}.loss", run.learner.trainer.loss)

    def on_train_start(self, run):
        if run.position:
            run.learner.predict(run.dataset.test.images[:3])

    def on_sample_start(self, run, sample):
        self.seen += len(run.records) + sample.task
        assert sample.task == run.task
        if run.position % 20 == 1:
            self.seen += run.learner.logits(sample.image[None]).argmax(1).item()

    def on_new_class(self, run, label):
        assert run.learner.labels[-1] == label
        self.look(run, "new_class")

    def on_update(self, run):
        self.look(run, "update")

    def on_sample(self, run, sample):
        assert sample.task == run.task
        self.look(run, "sample")

    def on_query(self, run, answer):
        assert (answer.at, answer.task) == (run.position, run.task)
        self.look(run, "query")
        run.log("query.accuracy", run.metrics.a_auc)

    def on_task_end(self, run, answer):
        assert answer is None or answer.at == run.position
        self.look(run, "task_end")

    def on_train_end(self, run):
        self.look(run, "train_end")
        run.log("train_end.rows", sum(run.records[-1].rows) if hasattr(run.records[-1], "rows") else 0)


class Mine(Callback):
    """Share of the classes met that were right at least once, at each query."""

    scale: float = 1.0

    def on_query(self, run, answer):
        run.log("mine", self.scale * sum(c > 0 for c in answer.correct) / len(answer.correct))


class StopAt(Callback):
    sample: int = 40

    def on_sample(self, run, sample):
        if run.position == self.sample:
            run.stop(f"after {self.sample}")


class Watching(Callback):
    """No method that takes part in the run."""

    def on_progress(self, position, accuracy, lr):
        self.position = position

"""The methods, a recipe each, which cites the paper; those that build on another come after it."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

from iblurry import parts
from iblurry.engine.optimizer import SGD
from iblurry.methods.method import Head, Method, Pace, Training
from iblurry.methods.recipe import Hyperparameters, recipe
from iblurry.storage.untrusted import exact

ER = "Rolnick et al., Experience replay for continual learning, NeurIPS 2019; Baseline-ER of Koh et al., ICLR 2022"
CLIB = (
    "Koh et al., Online Continual Learning on Class Incremental Blurry Task Configuration with Anytime Inference, "
    "ICLR 2022"
)
ENSEMBLES = "answers of Soutif-Cormerais et al., Temporal ensembles, CoLLAs 2023"
WHOLE_CYCLES = 255  # the released GDumb ends one epoch before the last cosine cycle does

# --------------------------------------------------------------------------------------------- experience replay


@recipe(paper=ER)
def er(hyperparameters: Hyperparameters) -> Method:
    """Each batch is half new samples, half samples drawn from a reservoir of the stream."""
    half = hyperparameters.batch // 2
    return Method(
        name="er",
        pace=Pace(
            stream_batch=half,
            updates_per_sample=exact(hyperparameters.updates_per_sample),
            store_when="after",  # a sample is trained on before it may enter the memory
            measure_every=hyperparameters.measure_every,
        ),
        admission=parts.Reservoir(),
        rehearsal=parts.Uniform(count=hyperparameters.batch - half),
        schedule=parts.Exponential(gamma=hyperparameters.gamma, restart_on_class=True),
    )


@recipe(paper=ER)
def er_constant(hyperparameters: Hyperparameters) -> Method:
    """ER at a rate that never moves (a row of the paper's table of schedules)."""
    return er(hyperparameters, name="er-constant", schedule=parts.Constant())


@recipe(paper=f"{ER}; {ENSEMBLES}")
def er_averaged(hyperparameters: Hyperparameters) -> Method:
    """ER, answered by a moving average of its weights."""
    return er(hyperparameters, name="er-averaged", readout=parts.Averaged())


@recipe(
    paper="Caccia et al., New insights on reducing abrupt representation change in online continual learning, ICLR 2022"
)
def er_ace(hyperparameters: Hyperparameters) -> Method:
    """ER; the loss of streamed samples sees only the classes among them, that of remembered ones all classes."""
    return er(hyperparameters, name="er-ace", terms=(parts.AsymmetricCrossEntropy(),))


@recipe(paper="Buzzega et al., Dark experience for general continual learning, NeurIPS 2020")
def derpp(hyperparameters: Hyperparameters) -> Method:
    """A third of the batch is new; of the remembered rest half keeps its labels, half the logits stored with it."""
    remembered = 2 * hyperparameters.batch // 3
    pace = dataclasses.replace(er(hyperparameters).pace, stream_batch=hyperparameters.batch - remembered)
    return er(
        hyperparameters,
        name="derpp",
        pace=pace,
        rehearsal=parts.Uniform(count=remembered),
        terms=(parts.StoredLogits(),),
    )


@recipe(paper="Aljundi et al., Online continual learning with maximally interfered retrieval, NeurIPS 2019")
def mir(hyperparameters: Hyperparameters) -> Method:
    """ER that rehearses the remembered samples whose loss a step on the new ones would raise most."""
    half = hyperparameters.batch - hyperparameters.batch // 2
    # Half of ImageNet's batch is more than the candidates: then all of them join.
    count = min(half, parts.Interfered.candidates)
    return er(hyperparameters, name="mir", rehearsal=parts.Interfered(count=count))


@recipe(paper="Aljundi et al., Gradient based sample selection for online continual learning, NeurIPS 2019")
def gss(hyperparameters: Hyperparameters) -> Method:
    """ER whose memory prefers samples with gradients unlike those it already holds (the greedy variant)."""
    return er(hyperparameters, name="gss", admission=parts.Diverse())


@recipe(paper="Chaudhry et al., Efficient lifelong learning with A-GEM, ICLR 2019")
def agem(hyperparameters: Hyperparameters) -> Method:
    """Batches of new samples only, their gradient projected so that the loss of remembered ones does not rise."""
    return er(hyperparameters, name="agem", rehearsal=parts.Nothing(), gradient=(parts.Project(),))


@recipe(
    paper="Chaudhry et al., Riemannian walk for incremental learning, ECCV 2018; with ER as in Koh et al., ICLR 2022"
)
def ewc(hyperparameters: Hyperparameters) -> Method:
    """ER with a quadratic penalty on leaving the last task's parameters, weighed by a running Fisher estimate."""
    return er(hyperparameters, name="ewc", terms=(parts.CrossEntropy(), parts.Elastic()))


@recipe(paper="Wu et al., Large scale incremental learning, CVPR 2019")
def bic(hyperparameters: Hyperparameters) -> Method:
    """ER that distils its earlier answers and corrects the logits of new classes on a small validation set."""
    return er(
        hyperparameters,
        name="bic",
        terms=(parts.CrossEntropy(), parts.Distil()),
        gradient=(parts.Clip(norm=10.0),),
        readout=parts.BiasCorrected(),
    )


@recipe(paper="Michel et al., Rethinking momentum knowledge distillation in online continual learning, ICML 2024")
def mkd(hyperparameters: Hyperparameters) -> Method:
    """ER and a teacher, the moving average of the weights; the mean of both answers."""
    terms = (parts.CrossEntropy(), parts.MomentumDistil())
    return er(hyperparameters, name="mkd", terms=terms, readout=parts.Averaged(decay=0.99, of="both"))


@recipe(paper="this project; see docs/methods/balm.md")
def balm(hyperparameters: Hyperparameters) -> Method:
    """New samples and a class-balanced memory; logits adjusted by class frequency; an average teaches and answers."""
    pace = er(hyperparameters).pace
    often = dataclasses.replace(
        pace, updates_per_sample=2 * pace.updates_per_sample, early_samples=5000, early_updates=4
    )
    return er(
        hyperparameters,
        name="balm",
        pace=often,
        admission=parts.Balanced(),
        terms=(parts.AdjustedCrossEntropy(), parts.AverageTeacher(decay=0.9995)),
        schedule=parts.Constant(),
        readout=parts.Averaged(decay=0.9995, warm_up=True),
    )


# ------------------------------------------------------- training from the memory alone: CLIB and its successors


@recipe(paper=CLIB)
def clib(hyperparameters: Hyperparameters) -> Method:
    """Every sample enters a class-balanced memory by importance; batches come from the memory only; the rate adapts."""
    return Method(
        name="clib",
        pace=Pace(
            stream_batch=1,
            train_stream=False,
            updates_per_sample=exact(hyperparameters.updates_per_sample),
            store_when="before",
            measure_every=hyperparameters.measure_every,
        ),
        admission=parts.Importance(),
        rehearsal=parts.Uniform(count=hyperparameters.batch),
        schedule=parts.Adaptive(),
        head=Head(moments="keep"),
    )


@recipe(paper=CLIB + " (Table 3, without importance)")
def clib_reservoir(hyperparameters: Hyperparameters) -> Method:
    """CLIB with a reservoir for a memory: neither importance nor class balance."""
    return clib(hyperparameters, name="clib-reservoir", admission=parts.Reservoir())


@recipe(paper=CLIB + " (Table 3, without memory-only training)")
def clib_stream(hyperparameters: Hyperparameters) -> Method:
    """CLIB with ER's batches: half new samples, half memory.

    A trial of the adaptive learning rate is ten rounds, here of eight samples: it spans eight times CLIB's updates.
    """
    base = er(hyperparameters)
    return clib(hyperparameters, name="clib-stream", pace=base.pace, rehearsal=base.rehearsal)


def _decays_per_round(method: Method) -> Method:
    """The released CLIB steps its schedule once per training call, unlike its ER."""
    if not isinstance(method.schedule, parts.Exponential):
        return method
    return dataclasses.replace(method, schedule=dataclasses.replace(method.schedule, per="round"))


@recipe(paper=CLIB + " (Table 3, without adaptive learning rate)", as_released=_decays_per_round)
def clib_exponential(hyperparameters: Hyperparameters) -> Method:
    """CLIB with ER's schedule: exponential decay, reset by each new class."""
    return clib(hyperparameters, name="clib-exponential", schedule=parts.Exponential(gamma=hyperparameters.gamma))


@recipe(paper="CLIB with the sampler of Prabhu et al., GDumb, ECCV 2020")
def clib_balanced(hyperparameters: Hyperparameters) -> Method:
    """CLIB with class balance but no importance: tells what each of the two is worth."""
    return clib(hyperparameters, name="clib-balanced", admission=parts.Balanced())


@recipe(paper=f"{CLIB}; {ENSEMBLES}")
def clib_averaged(hyperparameters: Hyperparameters) -> Method:
    """CLIB, answered by a moving average of its weights."""
    return clib(hyperparameters, name="clib-averaged", readout=parts.Averaged())


@recipe(
    paper="Seo, Koh and Choi, Budgeted online continual learning by adaptive layer freezing and frequency-based "
    "sampling, ICLR 2025 (the sampling)"
)
def sar(hyperparameters: Hyperparameters) -> Method:
    """Batches of a class-balanced memory, drawn by how little each row and classes like its own were used."""
    rehearsal = parts.LeastUsed(count=hyperparameters.batch)
    return clib_exponential(hyperparameters, name="sar", admission=parts.Balanced(), rehearsal=rehearsal)


@recipe(paper="Koh et al., Online boundary-free continual learning by scheduled data prior, ICLR 2023")
def sdp(hyperparameters: Hyperparameters) -> Method:
    """Batches of a class-balanced memory; a scheduled average of past selves teaches, as far as it is trusted."""
    return clib(
        hyperparameters,
        name="sdp",
        admission=parts.Balanced(),
        terms=(parts.ScheduledPrior(),),
        schedule=parts.ByConfidence(),
        head=Head(moments="keep", train=False),  # as released: rows stay as they were drawn
    )


# ------------------------------------------------------- study of the memory, for each query or at each task end


@recipe(paper="Prabhu et al., GDumb: A simple approach that questions our progress in continual learning, ECCV 2020")
def gdumb(hyperparameters: Hyperparameters) -> Method:
    """A class-balanced memory, and for each query a network trained on nothing but that, from scratch."""
    return Method(
        name="gdumb",
        pace=Pace(stream_batch=1, train_stream=False, updates_per_sample=Fraction(0), store_when="before"),
        admission=parts.Balanced(),
        rehearsal=parts.Nothing(),
        schedule=parts.Constant(initial_lr=0.05),  # of no effect: nothing is learnt online
        readout=parts.Refit(at="query", epochs=min(WHOLE_CYCLES, hyperparameters.epochs)),
        refit=Training(
            rehearsal=parts.Shuffled(count=hyperparameters.batch),
            schedule=parts.Cosine(floor=0.0),
            optimizer=SGD(),
        ),
    )


def _trains_norm_on_imagenet(method: Method) -> Method:
    """The released RM refits in the mode the last query left: eval, but on ImageNet no query falls on a task end."""
    readout, refit = method.readout, method.refit
    if not isinstance(readout, parts.Refit) or refit is None or not isinstance(refit.schedule, parts.MultiStep):
        return method
    return dataclasses.replace(method, readout=dataclasses.replace(readout, frozen_norm=False))


@recipe(
    paper="Bang et al., Rainbow memory: Continual learning with a memory of diverse samples, CVPR 2021",
    as_released=_trains_norm_on_imagenet,
)
def rm(hyperparameters: Hyperparameters) -> Method:
    """One step on each batch of new samples, and at every task end hundreds of epochs on a class-balanced memory."""
    milestones = hyperparameters.milestones
    return Method(
        name="rm",
        pace=Pace(stream_batch=hyperparameters.batch, updates_per_sample=Fraction(1, hyperparameters.batch)),
        admission=parts.Balanced(),
        rehearsal=parts.Nothing(),
        schedule=parts.Constant(initial_lr=0.05),
        optimizer=SGD(),
        readout=parts.Refit(at="boundary", epochs=hyperparameters.epochs),
        head=Head(moments="rebuild", redraw="all"),
        refit=Training(
            rehearsal=parts.Shuffled(count=hyperparameters.batch),
            gradient=(parts.Clip(norm=10.0),),
            schedule=parts.MultiStep(milestones=milestones) if milestones else parts.Cosine(floor=5e-4),
            optimizer=SGD(),
        ),
    )


@recipe(paper="The upper bound of Koh et al., ICLR 2022, Table 1; its epochs and schedule are not told, RM's are used")
def joint(hyperparameters: Hyperparameters) -> Method:
    """Keeps the whole stream, whatever the budget, and trains on all of it when the stream has ended."""
    return gdumb(
        hyperparameters,
        name="joint",
        admission=parts.Everything(),
        readout=parts.Refit(at="end", epochs=hyperparameters.epochs),
        refit=rm(hyperparameters).refit,
    )


# --------------------------------------------------------------------------------- features that are not trained


@recipe(paper="Mensink et al., Distance-based image classification: generalizing to new classes, PAMI 2013")
def ncm(hyperparameters: Hyperparameters) -> Method:
    """Features of a body that is not trained; the class with the nearest mean over all samples seen answers."""
    return Method(
        name="ncm",
        pace=Pace(stream_batch=1, train_stream=False, updates_per_sample=Fraction(0), store_when="before"),
        admission=parts.Discard(),
        rehearsal=parts.Nothing(),
        schedule=parts.Constant(),  # of no effect: no update is taken
        readout=parts.RunningMean(),
    )


@recipe(paper="Hayes and Kanan, Lifelong machine learning with deep streaming LDA, CVPR workshops 2020")
def slda(hyperparameters: Hyperparameters) -> Method:
    """Features of a body that is not trained; class means and one covariance over all samples seen answer."""
    return ncm(hyperparameters, name="slda", readout=parts.Discriminant())


@recipe(paper="McDonnell et al., RanPAC: random projections and pre-trained models, NeurIPS 2023")
def ranpac(hyperparameters: Hyperparameters) -> Method:
    """Features of a body that is not trained, projected at random; ridge regression over all samples seen answers."""
    return ncm(hyperparameters, name="ranpac", readout=parts.Ridge())


@recipe(paper="Prabhu et al., RanDumb: random representations outperform online continual learning, NeurIPS 2024")
def randumb(hyperparameters: Hyperparameters) -> Method:
    """Random Fourier features of pixels, without a network; class means and one covariance of all samples answer."""
    return ncm(hyperparameters, name="randumb", readout=parts.Discriminant(of="pixels", expand="fourier"))

"""lessram train and lessram resume."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lessram.cli.options import Data, Delimiter, Format, Header, Json, MaxErrors, Quiet, Threads, thread_count
from lessram.cli.outputs import check_apart, check_different, check_outputs
from lessram.errors import LessramError, SpecError

if TYPE_CHECKING:
    from lessram.learning.training import Training
    from lessram.model.model import Model

_RANDOMIZED = ("morris8", "ladder8")
"""The only rates of weights whose resolution follows a counter; a spec cannot tell its default from a wish."""

_CHOSEN_ALPHAS = ("auto", "frozen")

Output = Annotated[Path, typer.Option("--output", "-o", metavar="MODEL", help="Where to write the model.")]


def train(
    data: Data,
    output: Output,
    initial: Annotated[
        Path | None,
        typer.Option("--initial", "-i", metavar="MODEL", help="Continue from this model, with its options."),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="paper: q2.13, morris8, plain steps, alpha 0.2, unless given otherwise."),
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(
            metavar="FORMAT",
            help="float32, fixed point qN.M of at most 16 bits, e3m6 or e3m6xT, adaptive; auto is q3.12 (with "
            "squares6, e3m6), wider or narrower if the first examples ask for it.  [auto]",
        ),
    ] = None,
    codebook: Annotated[
        str | None,
        typer.Option(
            metavar="BOOK", help="Adaptive weights: standard, or auto: made from the first examples.  [standard]"
        ),
    ] = None,
    gamma: Annotated[
        float | None,
        typer.Option(help="Weights gamma, a control: the grid's step is at most gamma times the rate.  [1]"),
    ] = None,
    rates: Annotated[
        str | None,
        typer.Option(
            metavar="RATES",
            help="global; from counts: morris8, ladder8, exact32; from squared gradients: squares8, squares32, "
            "squares6 (16 bits for weight and sum).  [squares8]",
        ),
    ] = None,
    step: Annotated[
        str | None,
        typer.Option(metavar="STEP", help="plain, or with squares invariant: large steps do not overshoot."),
    ] = None,
    algorithm: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="ogd; with squares also ftrl (FTRL-Proximal) or rda, which take L1.  [ogd]"),
    ] = None,
    l1: Annotated[
        float | None, typer.Option(help="ftrl and rda: penalty on the size of a coefficient; leaves exact zeros.  [0]")
    ] = None,
    l2: Annotated[float | None, typer.Option(help="ftrl and rda: penalty on half its square.  [0]")] = None,
    loss: Annotated[str | None, typer.Option(metavar="LOSS", help="logistic, squared or hinge.  [logistic]")] = None,
    bits: Annotated[int | None, typer.Option(min=0, max=40, metavar="B", help="2^B slots.  [22]")] = None,
    alpha: Annotated[
        str | None,
        typer.Option(
            metavar="A",
            help="The learning rate's numerator. auto chooses it on the first examples; frozen does so for a model "
            "that will predict later data without further learning.  [auto]",
        ),
    ] = None,
    beta: Annotated[
        float | None, typer.Option(help="Added to the root of the sum of squared gradients.  [0.3]")
    ] = None,
    base: Annotated[float | None, typer.Option(help="Base of randomized counters and sums.  [1.1]")] = None,
    radius: Annotated[float | None, typer.Option(help="Keep coefficients in [-R, R].  [all of the format]")] = None,
    offset: Annotated[
        int | None,
        typer.Option(help="Added to exact counts under the root; 0 is the paper's Algorithm 2 as printed.  [1]"),
    ] = None,
    rate_floor: Annotated[
        bool | None, typer.Option("--rate-floor", help="Let rates fall no further than the step of the grid.")
    ] = None,
    intercept: Annotated[
        bool | None, typer.Option("--intercept/--no-intercept", help="Learn a constant term.  [intercept]")
    ] = None,
    scale: Annotated[
        str | None,
        typer.Option(metavar="SCALE", help="Divide values by their running root mean square (rms), or none.  [rms]"),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of all randomness; may differ from that of -i.  [0]")] = None,
    format: Format = "auto",
    label: Annotated[str | None, typer.Option(metavar="COLUMN", help="Tables: the column of the label.")] = None,
    weight: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Tables: the column of a row's importance.")
    ] = None,
    columns: Annotated[list[str] | None, typer.Option(metavar="NAMES", help="Tables: use only these columns.")] = None,
    categorical: Annotated[
        list[str] | None, typer.Option(metavar="NAMES", help="Tables: columns whose values are categories.")
    ] = None,
    numeric: Annotated[
        list[str] | None, typer.Option(metavar="NAMES", help="Tables: columns whose values are numbers.")
    ] = None,
    text: Annotated[
        list[str] | None, typer.Option(metavar="NAMES", help="Tables: columns of text, split into words.")
    ] = None,
    missing: Annotated[
        list[str] | None,
        typer.Option(metavar="WORDS", help="CSV and TSV: words that stand for an empty cell, such as NA,null."),
    ] = None,
    scale_columns: Annotated[
        bool,
        typer.Option(
            "--scale-columns/--raw-columns", help="Tables: centre numeric columns and scale them to one size."
        ),
    ] = True,
    text_pairs: Annotated[
        bool, typer.Option("--text-pairs", help="Text: also use pairs of neighbouring words.")
    ] = False,
    text_characters: Annotated[
        str | None, typer.Option(metavar="A-B", help="Text: also use runs of A to B characters, such as 3-5.")
    ] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option(metavar="NAMES", help="Columns (or first letters of VW namespaces) to leave out."),
    ] = None,
    keep: Annotated[
        list[str] | None, typer.Option(metavar="NAMES", help="First letters of the only VW namespaces to keep.")
    ] = None,
    interactions: Annotated[
        list[str] | None, typer.Option(metavar="NAMES", help="Products: VW namespaces ab, abc; columns site*device.")
    ] = None,
    delimiter: Delimiter = ",",
    header: Header = True,
    threads: Threads = 0,
    hash: Annotated[
        str,
        typer.Option(
            metavar="MODE", help="Ids beyond the table: auto hashes them, none refuses them. all hashes every id."
        ),
    ] = "auto",
    hash_seed: Annotated[int, typer.Option(help="Seed of the hash.")] = 0,
    passes: Annotated[int, typer.Option(min=1, help="Passes over the data; only the first is scored.")] = 1,
    checkpoint: Annotated[Path | None, typer.Option(metavar="PATH", help="Write checkpoints here, for resume.")] = None,
    checkpoint_every: Annotated[
        int, typer.Option(min=1, metavar="EXAMPLES", help="Examples between two checkpoints.")
    ] = 1_000_000,
    cache: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Keep parsed data in this file, for further passes and runs."),
    ] = None,
    shuffle: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="N",
            help="Shuffle in a buffer of N examples; it takes about 2 x N x (28 + 8 per feature) bytes.  [off]",
            show_default=False,
        ),
    ] = 0,
    max_errors: MaxErrors = 0,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Learn a model from data in one pass, predicting each example before learning from it.

    \b
    Examples:
      lessram train clicks.svm.gz -o clicks.lessram
      zcat day-*.gz | lessram train - -o clicks.lessram --bits 26
      lessram train data/ -o m.lessram --checkpoint c.lessram --checkpoint-every 5000000
      lessram train tuesday.svm -i monday.lessram -o tuesday.lessram
      lessram train a.svm -o control.lessram --weights float32 --rates exact32
      lessram train log.csv.zst -o log.lessram --label click --ignore id --interactions 'site*device'
      lessram train lake/*.parquet -o lake.lessram --label click --categorical user,site --text title
      lessram train clicks.vw -o clicks.lessram --interactions ab --ignore c
      lessram train clicks.svm -o sparse.lessram --algorithm ftrl --l1 1
      lessram train clicks.vw -o clicks.lessram --rates squares6 --bits 28
      lessram train clicks.svm -o paper.lessram --preset paper --alpha 0.1
      lessram train clicks.svm -o small.lessram --weights adaptive --codebook auto
    """
    from lessram.data.formats import Choices, Form, Stream
    from lessram.data.schema import Tokens
    from lessram.learning.training import Plan, Training, as_before, plan_sources, reading_of

    chosen = {
        "weights": None if weights == "auto" else weights,
        "codebook": codebook,
        "gamma": gamma,
        "rates": rates,
        "step_rule": step,
        "algorithm": algorithm,
        "l1": l1,
        "l2": l2,
        "loss": loss,
        "slots": None if bits is None else 1 << bits,
        "alpha": None if alpha in (None, *_CHOSEN_ALPHAS) else _rate(alpha),
        "beta": beta,
        "base": base,
        "radius": radius,
        "offset": offset,
        "rate_floor": rate_floor,
        "intercept": intercept,
        "scale": scale,
        "seed": seed,
    }
    check_outputs(output, cache, checkpoint)
    check_different(output, cache)  # a checkpoint may become the model
    check_different(cache, checkpoint)
    choices = Choices(
        hash=hash,
        hash_seed=hash_seed,
        label=label,
        weight=weight,
        columns=_names(columns),
        categorical=_names(categorical),
        numeric=_names(numeric),
        text=_names(text),
        ignore=_names(ignore),
        keep=_names(keep),
        interactions=_names(interactions),
        tokens=Tokens(pairs=text_pairs, characters=_span(text_characters)),
        scale_columns=scale_columns,
        missing=_names(missing),
    )
    model = _start(initial, {name: value for name, value in chosen.items() if value is not None}, preset)
    if initial is not None:
        for option, given in {"--alpha": alpha, "--weights": weights}.items():
            if given is not None:
                raise SpecError(f"{option} cannot be changed when going on from a model (-i)")
    unsaid = preset is None and initial is None
    auto_alpha = alpha in _CHOSEN_ALPHAS or (alpha is None and unsaid)
    auto_range = (weights == "auto" or (weights is None and unsaid)) and radius is None
    goes_on = bool(model.reader)  # what is not said again stays as it was
    sources = plan_sources(data)
    check_apart((output, cache, checkpoint), (source.path for source in sources))
    check_apart([cache], [initial] if initial else [])  # a model or a checkpoint may take its place
    stream = Stream([source.path for source in sources], Form(name=format, delimiter=delimiter, header=header))
    plan = Plan(
        sources=sources,
        form=stream.form,
        reading=reading_of(model) if goes_on and choices == Choices() else as_before(stream.decide(choices), model),
        threads=thread_count(threads),
        passes=passes,
        max_errors=max_errors,
        checkpoint=None if checkpoint is None else str(checkpoint.absolute()),
        checkpoint_every=checkpoint_every,
        cache=None if cache is None else str(cache.absolute()),
        shuffle=shuffle,
    )
    for note in stream.notes:
        typer.echo(note, err=True)
    training = Training(
        model, plan, stream=stream, auto_alpha=auto_alpha, auto_range=auto_range, frozen=alpha == "frozen"
    )
    _carry_out(training, output, quiet=quiet, json=json, whole_life=False)


def resume(
    checkpoint: Annotated[Path, typer.Argument(metavar="CHECKPOINT", help="Written by train --checkpoint.")],
    output: Output,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Continue from a checkpoint: same sources, same options, same model as without the stop.

    \b
    Example:
      lessram resume c.lessram -o clicks.lessram
    """
    from lessram.learning.training import Training

    check_outputs(output)
    training = Training.resumed(checkpoint)
    check_apart([output], (source.path for source in training.plan.sources))
    check_different(output, Path(training.plan.cache) if training.plan.cache else None)
    _carry_out(training, output, quiet=quiet, json=json, whole_life=True)


def _names(given: list[str] | None) -> tuple[str, ...]:
    return tuple(name for names in given or () for name in names.split(",") if name)


def _span(given: str | None) -> tuple[int, int] | None:
    if given is None:
        return None
    least, _, most = given.partition("-")
    if not (least.isdigit() and (most or least).isdigit()):
        raise SpecError(f"--text-characters must be two numbers such as 3-5, got {given!r}")
    return int(least), int(most or least)


def _rate(given: str | None) -> float:
    try:
        return float(given or "")
    except ValueError:
        raise SpecError(f"--alpha must be a number, auto or frozen, got {given!r}") from None


def _start(initial: Path | None, chosen: dict[str, Any], preset: str | None) -> Model:
    from msgspec import structs

    from lessram.model.model import Model
    from lessram.model.spec import PAPER, Spec, halfword_choices

    if preset not in (None, "paper"):
        raise SpecError(f"--preset must be paper, got {preset!r}")
    if initial is None:
        if chosen.get("weights") in ("adaptive", "gamma") and chosen.get("rates", "morris8") not in _RANDOMIZED:
            raise SpecError(f"weights {chosen['weights']} have rates by randomized counts, got rates {chosen['rates']}")
        return Model.new(Spec(**{"slots": 1 << 22, **(PAPER if preset else {}), **halfword_choices(chosen), **chosen}))
    if preset:
        raise SpecError("--preset cannot be changed when going on from a model (-i)")
    seed = chosen.pop("seed", None)  # may change: nothing that was learned depends on what is drawn from now on
    if chosen:
        options = ", ".join("--" + {"slots": "bits", "step_rule": "step"}.get(name, name) for name in chosen)
        raise SpecError(f"{options.replace('_', '-')} cannot be changed when going on from a model (-i)")
    model = Model.load(initial, writable=True)
    if seed is not None:
        model.spec = structs.replace(model.spec, seed=seed)
    model.progress = None
    return model


def _carry_out(training: Training, output: Path, *, quiet: bool, json: bool, whole_life: bool) -> None:
    import contextlib

    from lessram.cli.progress import Progress
    from lessram.cli.summary import Stopwatch, figures, hint_at_range, no_example, show
    from lessram.jit import nothing_compiled
    from lessram.learning.metrics import Scores
    from lessram.model.ledger import saturated

    if nothing_compiled() and not quiet:
        typer.echo("compiling for this machine; only the first run does", err=True)
    model = training.model
    before = training.scores.copy()
    baseline = Scores.new() if whole_life else before
    earlier = before.examples - baseline.examples
    progress = Progress(model.bits_per_slot, loss=model.spec.loss, quiet=quiet, before=earlier)
    watch = Stopwatch()
    try:
        with contextlib.closing(training.run()) as steps:  # however it ends, nothing half-written is left
            for share in steps:
                done = training.scores.examples - baseline.examples
                progress.update(done, lambda: training.scores.since(baseline), share)
    except KeyboardInterrupt:
        way_on = f"lessram resume {training.plan.checkpoint} -o {output}"
        raise LessramError(f"interrupted; go on with: {way_on}" if training.resumable else "interrupted") from None
    finally:
        progress.close()
        for note in training.notes:
            typer.echo(note, err=True)
    elapsed = watch.elapsed
    if model.examples == 0:
        raise no_example(training.report, training.plan.sources[0].path)
    if training.plan.shuffle:
        megabytes = training.buffer_bytes / 2**20
        typer.echo(
            f"shuffled by a buffer of {training.plan.shuffle:,} examples, at most {megabytes:,.1f} MiB", err=True
        )
    model.save(output)
    scores = training.scores.since(baseline)
    values = figures(model, scores, training.report, elapsed, training.scores.since(before))
    values["saturated"] = saturated(model)
    if hint := hint_at_range(model.spec, values["saturated"]):
        typer.echo(hint, err=True)
    show(values, training.report, json)

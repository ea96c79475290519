"""``klear run | plan | rules | new | show | report | merge | evaluate | doctor | status``."""

from __future__ import annotations

import argparse
import contextlib
import errno
import functools
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from klearlib import __version__
from klearlib.errors import Interrupted, KlearError, MissingAsset, ParameterError
from klearlib.evaluate.arguments import add_evaluate_arguments
from klearlib.run.stops import on_stop

_RULES_OF = "full"  # whose worlds and rates the published rules ran in
PROFILE = "mini"
"""The default profile, as in the Makefile: its results are in git, and it has enough seeds for
verdicts. `smoke` only shows that everything runs."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; a user's mistake is one line on stderr.

    Exit codes: 0, 1 failure, 2 wrong parameters or usage, 138 a kernel died, 141 the output pipe
    was closed, 128 plus the number of the signal that stopped it: 130 Ctrl-C, 143 terminated, 129
    the terminal was closed, 131 Ctrl-\\.
    """
    came: list[int] = []

    def stop(number: int, frame: object) -> None:
        came.append(number)
        raise Interrupted  # KeyboardInterrupt itself kills Python at its end if an exec() passed it

    try:
        with on_stop(stop):
            arguments = _parser().parse_args(argv)
            if arguments.command in (_run, _plan, _new, _rules):
                from klearlib.params.project import begin

                begin()
            code = arguments.command(arguments)
            sys.stdout.flush()  # here, so that a closed pipe is handled below
            return code
    except SystemExit as end:  # argparse: 2 for wrong usage, 0 after --help and --version
        return end.code
    except KlearError as error:
        said, code = error, error.exit_code
    except KeyboardInterrupt:
        said, code = "stopped", 128 + (came or [signal.SIGINT])[0]
    except OSError as error:
        if error.errno in (errno.EPIPE, errno.EIO) and error.filename is None:
            said, code = "stopped: output pipe closed", 141
            _let_go(sys.stdout)
        elif error.filename is None and error.errno != errno.ENOSPC:
            raise
        else:
            from klearlib.run.files import write_failure

            said, code = write_failure(error, error.filename or "its output"), 1
            if error.filename is None:
                _let_go(sys.stdout)
    try:
        print(f"klear: {said}", file=sys.stderr, flush=True)
    except OSError:
        _let_go(sys.stderr)
    return code


def _let_go(stream) -> None:
    """Send what is still to be written to a stream without a reader to the null device."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _run(arguments: argparse.Namespace) -> int:
    from klearlib.suite.notebooks import run

    return run(
        arguments.profile,
        _only(arguments),
        **_chosen(arguments),
        keep_going=arguments.keep_going,
        tensorboard=arguments.tensorboard,
    )


def _rules(arguments: argparse.Namespace) -> int:
    """Run notebook 12 of `_RULES_OF` with a user's rule and Clip-Higher alone."""
    from klearlib.params import load_profile
    from klearlib.params.place import in_yaml
    from klearlib.suite.notebooks import run

    values = load_profile(_RULES_OF, "12_rules")
    every, (_, colon, name) = values["seeds"], arguments.rule.rpartition(":")
    if not colon:
        raise ParameterError(f"{arguments.rule}: write the rule as FILE.py:NAME")
    if not 2 <= arguments.worlds <= len(every):
        raise ParameterError(f"--worlds must be from 2 to {len(every)}, got {arguments.worlds}")
    settings = {
        "rules": ["clip_higher", arguments.rule],
        "more_rules": [],
        "variants": {},
        "learning_rates": values["common_rates"],
        "seeds": every[: arguments.worlds],
    }
    out = arguments.out or f"results/own-rule-{name}"
    given = [f"{name}={in_yaml(value)}" for name, value in settings.items()]
    return run(_RULES_OF, ["12"], settings=given, out=out, workers=arguments.workers)


def _plan(arguments: argparse.Namespace) -> int:
    from klearlib.suite.plan import describe, plan, weighed

    planned = plan(arguments.profile, _only(arguments), **_chosen(arguments))
    print(describe(weighed(arguments.profile, planned)))
    return 0


def _only(arguments: argparse.Namespace) -> list[str]:
    """The notebooks asked for, one a word: "05,07" are two."""
    return [word for words in arguments.only for word in words.split(",")]


def _chosen(arguments: argparse.Namespace) -> dict[str, object]:
    """The options that `run` and `plan` share."""
    from klearlib.params.statistics import REPLICATES

    if arguments.replicates is not None:
        os.environ[REPLICATES] = arguments.replicates  # the processes of notebooks see it too
    names = {"settings": "set", "out": "out", "force": "force", "workers": "workers"}
    return {keyword: getattr(arguments, option) for keyword, option in names.items()}


def _workers(text: str) -> int | str:
    return int(text) if text.isdecimal() else text  # the parameter's own check comes later


def _report(arguments: argparse.Namespace) -> int:
    """Build the reports of a profile and of what was changed from it, and print where they are."""
    from klearlib.experiments.catalogue import experiments, rebuild
    from klearlib.params import require_profile
    from klearlib.params.place import own_places, place_of
    from klearlib.report.front_page import write_front_page
    from klearlib.report.page import build_report

    profile = require_profile(arguments.profile)
    own = place_of(profile, {})
    ran = [each for each in (own, *own_places(own)) if any(each.folder.glob("*/section.json"))]
    if not ran:
        raise MissingAsset(f"nothing has been run at profile {profile} yet: {own.command}")
    code = 0
    for place in ran:
        rebuild(place.folder)
        if arguments.notebooks:
            from klearlib.suite.notebooks import execute_published  # what runs stages

            code = execute_published(place) or code
        print(build_report(place.folder, experiments()))
    if arguments.readme is not None:
        print(write_front_page(Path(arguments.readme), own.folder))
    return code


def _merge(arguments: argparse.Namespace) -> int:
    from klearlib.experiments.merging import merge

    print(merge(arguments.folders, arguments.out, other_versions=arguments.other_versions))
    return 0


def _show(arguments: argparse.Namespace) -> int:
    from klearlib.suite.show import show

    return show(arguments.run)


def _evaluate(arguments: argparse.Namespace) -> int:
    from klearlib.evaluate.command import evaluate_command

    return evaluate_command(arguments)


def _new(arguments: argparse.Namespace) -> int:
    from klearlib.suite.new import new_profile

    names = ("model", "problems", "max_new_tokens", "chat_template", "examples", "reward")
    given = {name: getattr(arguments, name) for name in names}
    given |= {"benchmarks": arguments.benchmark, "probed": arguments.probe}
    print(new_profile(arguments.name, **given))
    print(f"next: klear plan --profile {arguments.name}, klear run --profile {arguments.name}")
    return 0


def _doctor(_: argparse.Namespace) -> int:
    from klearlib.suite.doctor import diagnose

    findings = diagnose()
    print("\n".join(map(str, findings)))
    ready = not any(finding.fix and finding.required for finding in findings)
    lacks = "install what is marked MISSING, then run klear doctor again"
    print("klear run --profile smoke can run" if ready else lacks)
    return 0 if ready else 1


def _status(arguments: argparse.Namespace) -> int:
    from klearlib.suite.status import describe_status

    print(describe_status(arguments.profile))
    return 0


def _parser() -> argparse.ArgumentParser:
    # No abbreviations: an option of tomorrow would change their meaning.
    parser_of = functools.partial(argparse.ArgumentParser, allow_abbrev=False)
    parser = parser_of(prog="klear", description="Reproduce the Klear-Reasoner paper.")
    parser.add_argument("--version", action="version", version=f"klear {__version__}")
    parser.set_defaults(command=lambda _: parser.print_help() or 2)
    commands = parser.add_subparsers(metavar="command", parser_class=parser_of)
    of_profile = {"default": PROFILE, "help": f"a folder in params/ (default: {PROFILE})"}

    run = commands.add_parser("run", help="run the notebooks of a profile that are not cached yet")
    plan = commands.add_parser("plan", help="show what run would do, without doing it")
    for command, action in ((run, _run), (plan, _plan)):
        command.set_defaults(command=action)
        command.add_argument("--profile", **of_profile)
        command.add_argument(
            "--only",
            nargs="+",
            default=[],
            metavar="NN",
            help="only these notebooks, by number or name: 05 07, or 05,07",
        )
        command.add_argument(
            "--set",
            action="append",
            default=[],
            metavar="NAME=VALUE",
            help="set a parameter (YAML value) in the chosen notebooks that have it; needs --out",
        )
        command.add_argument(
            "--out", metavar="DIR", help="results folder for changed parameters: results/mine"
        )
        command.add_argument(
            "--replicates",
            metavar="200-203",
            help="run only these seeds or worlds; klear merge joins the pieces",
        )
        command.add_argument("--force", action="store_true", help="also run cached notebooks")
        command.add_argument(
            "--workers",
            type=_workers,
            metavar="N|ray",
            help="stages at a time, 0: one per core or GPU; ray: on a Ray cluster",
        )
    run.add_argument("--keep-going", action="store_true", help="continue after a notebook fails")
    tensorboard = "also write the metrics for TensorBoard"
    run.add_argument("--tensorboard", metavar="DIR", help=tensorboard)

    rules = commands.add_parser("rules", help="test your clipping rule by notebook 12's protocol")
    rules.set_defaults(command=_rules)
    rules.add_argument("rule", metavar="FILE.py:NAME", help="see docs/own-rule.md")
    worlds = "number of worlds, 2 to 16 (default: 8)"
    rules.add_argument("--worlds", type=int, default=8, metavar="N", help=worlds)
    out = "results folder (default: results/own-rule-NAME)"
    rules.add_argument("--out", metavar="DIR", help=out)
    rules.add_argument("--workers", type=_workers, metavar="N|ray", help="as for klear run")

    show = commands.add_parser("show", help="print what the policy of an RL run wrote")
    show.set_defaults(command=_show)
    show.add_argument("run", metavar="RUN", help="its key, or the start of it, from klear status")

    report = commands.add_parser("report", help="rebuild the reports of a profile")
    report.set_defaults(command=_report)
    report.add_argument("--profile", **of_profile)
    report.add_argument(
        "--readme",
        metavar="FILE",
        help="also rewrite the table of claims between the profile's markers in this markdown file",
    )
    report.add_argument(
        "--notebooks",
        action="store_true",
        help="also execute the notebooks, with the runs of their published tables; nothing trains",
    )

    merge = commands.add_parser("merge", help="join results of different replicates in one folder")
    merge.set_defaults(command=_merge)
    merge.add_argument("folders", nargs="+", metavar="DIR", help="such as results/full")
    merge.add_argument("--out", required=True, metavar="DIR", help="such as results/all")
    merge.add_argument(
        "--other-versions",
        action="store_true",
        help="also join runs of different code or libraries; the report says so",
    )

    evaluate = commands.add_parser(
        "evaluate", help="score a model, or existing responses, on a benchmark"
    )
    evaluate.set_defaults(command=_evaluate)
    add_evaluate_arguments(evaluate)

    new = commands.add_parser("new", help="write a profile for your own model and problems")
    new.set_defaults(command=_new)
    new.add_argument("name", metavar="NAME", help="name of the new folder in params/")
    new.add_argument("--model", required=True, metavar="PATH|HUB_ID", help="a causal model")
    data = "a file of rows (problem or question, and answer), SOURCE=FILE, or a hub id"
    tests = f"what to measure on, up to three: {data}"
    new.add_argument("--problems", required=True, metavar="DATA", help=f"problems for RL: {data}")
    new.add_argument("--benchmark", required=True, action="append", metavar="DATA", help=tests)
    learnt = "examples for SFT before RL: rows with a response too, or a data set with responses"
    new.add_argument("--examples", metavar="DATA", help=learnt)
    new.add_argument("--max-new-tokens", type=int, metavar="N", help="token budget of a response")
    new.add_argument("--chat-template", metavar="FILE", help="a template, if the model has none")
    own = "judges answers and sets rewards in place of the built-in judge"
    new.add_argument("--reward", metavar="FILE.py:FUNCTION", help=own)
    probe = "try three learning rates for three RL steps each, and write one at which clipping acts"
    new.add_argument("--probe", action="store_true", help=probe)

    doctor = commands.add_parser("doctor", help="what this machine has and lacks")
    doctor.set_defaults(command=_doctor)

    status = commands.add_parser("status", help="what is done, running, partial or broken")
    status.set_defaults(command=_status)
    status.add_argument("--profile", default="", help="only this profile (default: all)")
    return parser


if __name__ == "__main__":
    sys.exit(main())

"""`proctor completion SHELL`: a script that completes commands, options, and the names of fleets and agents that run.

The parser of the command line has a generator of its own, which knows neither the verbs' options nor names that are to be asked for. The
commands and options stand in the script; only a name starts a process, `proctor completion agents`, on the quick path of the verbs.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, get_args, get_origin

import attrs

from proctor.cli.app import build_app
from proctor.cli.verbs import VERBS, Word

NAMES: Mapping[str, str] = {"agent": "agents", "fleet": "fleets"}
"""Words of verbs that are names → what lists them."""


@attrs.frozen
class Option:
    """An option: its names, and the values it can have; `flag`: it has none."""

    names: tuple[str, ...]
    values: tuple[str, ...] = ()
    flag: bool = False


@attrs.frozen
class Command:
    """What can follow a command: its options, and for its first word these values, or the names that `listed` gives."""

    name: str
    summary: str
    options: tuple[Option, ...]
    values: tuple[str, ...] = ()
    listed: str = ""


def completion_script(shell: str) -> str:
    """The script for a shell."""
    return SCRIPTS[shell]([*_commands()])


def _commands() -> Iterator[Command]:
    app = build_app()
    for name in app:
        if name.startswith("-"):
            continue
        if name in VERBS:
            yield _verb(name)
        else:
            arguments = app[name].assemble_argument_collection()
            options = [_option(each.names, each.hint) for each in arguments if each.names[0].startswith("-")]
            yield Command(name, str(app[name].help or "").partition("\n")[0], tuple(options))


def _verb(name: str) -> Command:
    words = VERBS[name].words
    options = tuple(_verb_option(word) for word in words if word.names[0].startswith("-"))
    first = next((word for word in words if not word.names[0].startswith("-")), Word(("",), {}))
    values = tuple(first.options.get("choices", ()))
    return Command(name, VERBS[name].summary, options, values, NAMES.get(first.names[0], ""))


def _verb_option(word: Word) -> Option:
    is_flag = word.options.get("action") == "store_true"
    return Option(word.names, tuple(word.options.get("choices", ())), is_flag)


def _option(names: Sequence[str], hint: Any) -> Option:
    return Option(tuple(names), tuple(_choices(hint)), hint is bool or bool in get_args(hint))


def _choices(hint: Any) -> Iterator[str]:
    """The texts of the `Literal` in a type, if there is one."""
    for part in get_args(hint):
        if get_origin(hint) is Literal:
            yield str(part)
        else:
            yield from _choices(part)


# -- bash, and zsh by its emulation

BASH = """\
# completion of proctor for bash: eval "$(proctor completion bash)"
_proctor() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" command="${{COMP_WORDS[1]}}" options="" words="" listed="" word
    COMPREPLY=()
    case "$command ${{COMP_WORDS[COMP_CWORD-1]}}" in
{values}
    esac
    case "$command" in
{commands}
    esac
    for word in "${{COMP_WORDS[@]:2:COMP_CWORD-2}}"; do
        [[ $word == -* ]] || words="" listed=""
    done
    if [ "$COMP_CWORD" -eq 1 ]; then
        words={names}
    elif [[ $current == -* ]]; then
        words="$options --help"
    elif [ -n "$listed" ]; then
        words="$(proctor completion "$listed" 2>/dev/null)"
    fi
    COMPREPLY=( $(compgen -W "$words" -- "$current") )
}}
complete -o bashdefault -o default -F _proctor proctor
"""
ZSH = """\
# completion of proctor for zsh: eval "$(proctor completion zsh)"
autoload -U +X compinit && compinit -u
autoload -U +X bashcompinit && bashcompinit
"""


def _bash(commands: Sequence[Command]) -> str:
    names = shlex.quote(" ".join([*(command.name for command in commands), "help"]))
    lines = [f"        {command.name}) {_bash_words(command)} ;;" for command in commands]
    return BASH.format(names=names, values="\n".join(_bash_values(commands)), commands="\n".join(lines))


def _bash_values(commands: Sequence[Command]) -> Iterator[str]:
    """What follows an option that has a value: one of these, or, where they are not known, a file."""
    places: dict[str, list[str]] = {}
    for command in commands:
        for option in command.options:
            names = [] if option.flag else [shlex.quote(f"{command.name} {name}") for name in option.names]
            places.setdefault(" ".join(option.values), []).extend(names)
    for values, names in places.items():
        reply = f'COMPREPLY=( $(compgen -W {shlex.quote(values)} -- "$current") ); ' if values else ""
        if names:
            yield f"        {'|'.join(names)}) {reply}return ;;"


def _bash_words(command: Command) -> str:
    options = [name for option in command.options for name in option.names if name.startswith("--")]
    return f"options={shlex.quote(' '.join(options))} words={shlex.quote(' '.join(command.values))} listed={command.listed}"


def _zsh(commands: Sequence[Command]) -> str:
    return ZSH + _bash(commands).partition("\n")[2]


# -- fish


def _fish(commands: Sequence[Command]) -> str:
    lines = ["# completion of proctor for fish: proctor completion fish | source", "complete -c proctor -e"]
    for command in commands:
        summary = shlex.quote(command.summary)
        lines.append(f"complete -c proctor -f -n __fish_use_subcommand -a {command.name} -d {summary}")
        after = f"complete -c proctor -n '__fish_seen_subcommand_from {command.name}'"
        words = (
            f"(proctor completion {command.listed} 2>/dev/null)"
            if command.listed
            else " ".join(command.values)
        )
        if words:
            lines.append(f"{after} -f -a {shlex.quote(words)}")
        lines += [f"{after} {_fish_option(option)}" for option in command.options]
    return "\n".join([*lines, ""])


def _fish_option(option: Option) -> str:
    names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names)
    if option.flag:
        return names
    return f"{names} -x -a {shlex.quote(' '.join(option.values))}" if option.values else f"{names} -r"


SCRIPTS: Mapping[str, Callable[[Sequence[Command]], str]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
"""The shells, and what makes their scripts."""

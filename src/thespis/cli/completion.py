"""`thespis completion SHELL`: prints a script that completes commands, options and names.

Everything is in the script, so that a shell need not start Python to complete a word; only the
folders of runs are looked up by the shell itself.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterable, Mapping
from typing import Any

from thespis.cli.common import JSON, print_result, read_arguments
from thespis.errors import ThespisError, or_all

OPTION = re.compile(r"^  (?:-o, )?--([\w.-]+)(?: \{([^}]*)\})?", re.M)
OF_ALGO = ("train", "plan", "config")  # commands whose options depend on the algorithm
RUNS = ("resume", "rerun", "eval", "play", "demos", "plot", "export", "report", "push")
TO_RUNS = ("demos", "init-from", "skills-from")  # options whose values are runs
TO_ENVS = ("env", "eval-env")
Table = dict[str, list[str]]


def completion(argv: list[str]) -> None:
    """Prints the completion script for a shell."""
    example = "completion bash > ~/.local/share/bash-completion/completions/thespis"
    usage = f"completion {{{','.join(SHELLS)}}}"
    words, args = read_arguments(usage, argv, [JSON], example)
    if words[0] not in SHELLS:
        raise ThespisError(f"unknown shell {words[0]!r}{or_all(words[0], SHELLS)}")
    text = SHELLS[words[0]](Words())
    print_result({"shell": words[0], "script": text}, args.json, [text])


class Words:
    """All words that can be completed."""

    def __init__(self):
        from thespis import envs
        from thespis.algos import registry
        from thespis.cli.command import COMMANDS
        from thespis.cli.skills import COMMANDS as SKILLS
        from thespis.runs import zoo

        self.commands, self.skills = [*COMMANDS, "help"], list(SKILLS)
        self.algos, self.zoo = registry.names(), zoo.names()
        self.in_zoo = [f"{zoo.PREFIX}{name}" for name in self.zoo]  # where a run is wanted
        self.envs = [name for group in envs.names().values() for name in group]
        known = registry.ALGORITHMS
        self.presets: Table = {name: list(x.presets) for name, x in known.items() if x.presets}
        self.options: Table = {}
        self.choices: Table = {}
        calls = [[name] for name in COMMANDS if name not in OF_ALGO]
        calls += [["skills", name] for name in SKILLS]
        calls += [[name, algo] for name in OF_ALGO for algo in known]
        for call in calls:
            self.add(call)

    def add(self, call: list[str]) -> None:
        """Adds the options of a command, read from its help."""
        from thespis.cli.command import main

        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            main([*call, "--help-all"])
        options = []
        for name, choices in OPTION.findall(printed.getvalue()):
            short = re.sub(r"^(algo|hp)\.", "", name)
            options += [f"--{short}"]
            if choices:
                self.choices[f"--{short}"] = choices.split(",")
        self.options[" ".join(call)] = [*dict.fromkeys(options), "--help"]


# --- bash and zsh ---------------------------------------------------------------------------


def cases(table: Mapping[str, Iterable[str]]) -> str:
    """Returns the lines of a `case` statement that prints the words for its argument."""
    lines = (f"    {quoted(name)}) echo {quoted(' '.join(x))} ;;" for name, x in table.items())
    return "\n".join(lines)


def quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def functions(words: Words) -> str:
    """Returns the functions that bash and zsh share, which print the words of a kind."""
    values = dict(words.choices) | {f"--{name}": words.envs for name in TO_ENVS}
    first: Table = dict.fromkeys((*OF_ALGO, "sweep"), words.algos) | {"check-env": words.envs}
    first |= {"help": words.commands, "completion": list(SHELLS), "skills": words.skills}
    first["zoo"] = words.zoo
    return f"""\
_thespis_options() {{
  case "$1 $2" in
{cases({name: x for name, x in words.options.items() if " " in name})}
    *) case "$1" in
{cases({name: x for name, x in words.options.items() if " " not in name})}
    esac ;;
  esac
}}
_thespis_presets() {{
  case "$1" in
{cases(words.presets)}
  esac
}}
_thespis_values() {{
  case "$1" in
{cases(values)}
  esac
}}
_thespis_first() {{
  case "$1" in
{cases(first)}
  esac
}}
_thespis_takes_runs() {{
  case "$1" in {"|".join([*RUNS, *(f"--{name}" for name in TO_RUNS)])}) return 0 ;; esac
  return 1
}}
_thespis_commands={quoted(" ".join(words.commands))}
_thespis_zoo={quoted(" ".join(words.in_zoo))}
"""


def bash(words: Words) -> str:
    return f"""\
# Completion of thespis for bash: save it as ~/.local/share/bash-completion/completions/thespis
{functions(words)}\
_thespis() {{
  local line=${{COMP_LINE:0:COMP_POINT}} cur found run typed
  local -a words runs
  cur=${{line##*[[:space:]]}}
  read -ra words <<< "${{line%"$cur"}}"
  local count=${{#words[@]}} command=${{words[1]}} previous=${{words[-1]}}
  if (( count < 2 )); then
    found=$_thespis_commands
  elif [[ $previous == --preset ]]; then
    found=$(_thespis_presets "${{words[2]}}")
  elif [[ $cur == -* ]]; then
    found=$(_thespis_options "$command" "${{words[2]}}")
  else
    found=$(_thespis_values "$previous")
    (( count == 2 )) && found+=" $(_thespis_first "$command")"
    typed=$command
    [[ $previous == --* ]] && typed=$previous
    if _thespis_takes_runs "$typed" || [[ $command == skills && $count == 3 ]]; then
      found+=" $_thespis_zoo"
      for run in "${{THESPIS_RUNS:-runs}}"/*/*/config.json; do  # names are not expanded
        [[ -e $run && $run == "$cur"* ]] && runs+=("$(printf %q "${{run%/config.json}}")")
      done
    fi
  fi
  mapfile -t COMPREPLY < <(compgen -W "$found" -- "$cur")
  COMPREPLY+=("${{runs[@]}}")
  if [[ $cur == *:* && $COMP_WORDBREAKS == *:* ]]; then  # bash completes what follows the colon
    COMPREPLY=("${{COMPREPLY[@]#"${{cur%"${{cur##*:}}"}}"}}")
  fi
}}
complete -o bashdefault -o default -F _thespis thespis"""


def zsh(words: Words) -> str:
    return f"""\
#compdef thespis
# Completion of thespis for zsh: save it as _thespis in a folder of $fpath
{functions(words)}\
_thespis() {{
  local command=$words[2] previous=$words[CURRENT-1] typed
  local -a found runs
  if (( CURRENT == 2 )); then
    found=(${{=_thespis_commands}})
  elif [[ $previous == --preset ]]; then
    found=($(_thespis_presets "$words[3]"))
  elif [[ $words[CURRENT] == -* ]]; then
    found=($(_thespis_options "$command" "$words[3]"))
  else
    found=($(_thespis_values "$previous"))
    (( CURRENT == 3 )) && found+=($(_thespis_first "$command"))
    typed=$command
    [[ $previous == --* ]] && typed=$previous
    if _thespis_takes_runs "$typed" || [[ $command == skills && $CURRENT == 4 ]]; then
      runs=("${{THESPIS_RUNS:-runs}}"/*/*/config.json(N:h))
      found+=($runs ${{=_thespis_zoo}})
    fi
  fi
  (( $#found )) && compadd -a found || _files
}}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
  _thespis "$@"
else
  compdef _thespis thespis
fi"""


# --- fish -----------------------------------------------------------------------------------


def fish(words: Words) -> str:
    lines = [
        "# Completion of thespis for fish: save it as ~/.config/fish/completions/thespis.fish",
        "function __thespis_at",
        "  set -l words (commandline -opc)",
        "  set -l last (math (count $argv) + 1)",
        "  test (count $words) -ge $last; or return 1",
        '  test (count $argv) -eq 0; or test "$words[2..$last]" = "$argv"',
        "end",
        "function __thespis_first",
        "  set -l words (commandline -opc)",
        "  test (count $words) -eq (math (count $argv) + 1); and __thespis_at $argv",
        "end",
        "function __thespis_runs",
        "  set -l out runs",
        '  set -q THESPIS_RUNS; and test -n "$THESPIS_RUNS"; and set out $THESPIS_RUNS',
        "  for run in $out/*/*/config.json",
        "    dirname $run",
        "  end",
        f"  string split ' ' {quoted(' '.join(words.in_zoo))}",
        "end",
    ]
    first = lambda at, candidates: (
        f"complete -c thespis -f -n '__thespis_first {at}' -a {quoted(' '.join(candidates))}"
    )
    lines.append(first("", words.commands))
    lines += [first(name, words.algos) for name in (*OF_ALGO, "sweep")]
    lines += [first("check-env", words.envs), first("help", words.commands)]
    lines += [first("completion", SHELLS), first("skills", words.skills)]
    lines.append(first("zoo", words.zoo))
    takes = [*RUNS, *(f"skills {name}" for name in words.skills)]
    lines += [
        f"complete -c thespis -n '__thespis_at {name}' -a '(__thespis_runs)'" for name in takes
    ]
    for call, options in words.options.items():
        for option in options:
            lines.append(
                f"complete -c thespis -n '__thespis_at {call}' -l {option[2:]}"
                + (fish_values(words, call, option))
            )
    return "\n".join(lines)


def fish_values(words: Words, call: str, option: str) -> str:
    """Returns the arguments of fish's `complete` for the values of an option."""
    name, presets = option[2:], words.presets.get(call.rpartition(" ")[2], [])
    if name == "preset" and presets:
        return f" -x -a {quoted(' '.join(presets))}"
    if name in TO_ENVS:
        return f" -x -a {quoted(' '.join(words.envs))}"
    if name in TO_RUNS:
        return " -r -a '(__thespis_runs)'"
    if choices := words.choices.get(option):
        return f" -x -a {quoted(' '.join(choices))}"
    return ""


SHELLS: dict[str, Any] = {"bash": bash, "zsh": zsh, "fish": fish}

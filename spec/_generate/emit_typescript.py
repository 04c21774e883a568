"""Writes TypeScript code for the errors and defaults."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from spec._generate.text import camel, header, single, typescript_name, union

if TYPE_CHECKING:
    from spec._generate.defaults import Constant, Group
    from spec._generate.errors import Errors, Record

# Errors that the client raises without a message. All others have their own message, so pages don't
# load their meaning.
_SAID_ALONE = frozenset({"closed", "outcome_unknown"})


def _row(name: str, record: Record) -> str:
    """A code of a class, without what the module adds."""
    code = "" if record.code == re.sub(r"\B[A-Z]", r"_\g<0>", name).lower() else record.code
    action = "again" if record.retryable else record.action.removesuffix("retry")
    return f"{code}:{action}:{record.close or ''}".rstrip(":")


def errors(table: Errors) -> str:
    """The module `generated/errors.ts`."""
    table = table.spelled(typescript_name)
    out = [
        header("//", "spec/errors.yaml"),
        "",
        "import { DEVELOPMENT } from '../build.js';",
        "",
        "/** What a client does: try again, try again with a new token, or end. */",
        "export type CloseAction = 'retry' | 'reauth' | 'stop';",
        "",
    ]
    out += union("WireCode", table.wire, "Codes that a server sends.")
    out += union("ClientCode", table.client, "Codes that only the SDK raises.")
    out += ["/** Every known code. */", "export type Code = WireCode | ClientCode;", ""]
    out += union("ErrorName", table.names, "Names of the error classes.")
    out += [
        "/** What is known of a code. */",
        "export interface ErrorRecord {",
        "  readonly code: Code;",
        "  /** Name of the error class. */",
        "  readonly error: ErrorName;",
        "  readonly retryable: boolean;",
        "  /** What a connection that this ended does next. */",
        "  readonly action: CloseAction;",
        "  readonly remedy: string;",
        "  /** Address of its description. */",
        "  readonly docs: string;",
        "  /** WebSocket close code, where the code has one. */",
        "  readonly close: number | undefined;",
        "  /** What it means in words, where the client itself says no more. */",
        "  readonly meaning: string | undefined;",
        "}",
        "",
        "/**",
        " * Every code by its class, as `code:next:close`; the usual code of a class comes first.",
        " *",
        " * A missing code is the class name in snake case, and a missing `next` is `retry`.",
        " * `again`: what failed may be tried again, unchanged, and so may the connection.",
        " */",
        "const table: Readonly<Record<ErrorName, string>> = {",
    ]
    out += [
        f"  {name}: {single(' '.join(_row(name, record) for record in table.of(name)))},"
        for name in table.names
    ]
    out += [
        "};",
        "",
        "/** Remedy and, where the client itself says no more, meaning of every code. */",
        "const words: Readonly<Record<Code, readonly [remedy: string, meaning?: string]>> = {",
        *(
            f"  {record.code}: [{', '.join(map(single, _words(record)))}],"
            for name in table.names
            for record in table.of(name)
        ),
        "};",
        "",
        "/** What is known of each code; the usual code of a class comes before its others. */",
        "export const CODES: ReadonlyMap<string, ErrorRecord> = new Map(",
        "  Object.entries(table).flatMap(([error, rows]) =>",
        "    rows.split(' ').map((row) => {",
        "      const [given, next = 'retry', close] = row.split(':');",
        "      const code = given || error.replace(/\\B[A-Z]/g, '_$&').toLowerCase();",
        "      const retryable = next === 'again';",
        "      const action = retryable ? 'retry' : next || 'retry';",
        f"      const docs = `{table.page}#${{code}}`;",
        "      const remedy = DEVELOPMENT ? words[code as Code][0] : `See ${docs}`;",
        "      return [",
        "        code,",
        "        {",
        "          code,",
        "          error,",
        "          retryable,",
        "          action,",
        "          remedy,",
        "          docs,",
        "          close: close && Number(close),",
        "          ...(DEVELOPMENT && { meaning: words[code as Code][1] }),",
        "        } as ErrorRecord,",
        "      ];",
        "    }),",
        "  ),",
        ");",
        "",
        "const closes: Readonly<Record<number, CloseAction>> = {",
    ]
    for closing in table.closes:
        if closing.action != "retry":
            out += [
                f"  /** {closing.meaning} */\n  {code}: {single(closing.action)},"
                for code in range(closing.first, closing.last + 1)
            ]
    out += [
        "};",
        "",
        "/** What a client does after its socket closed with this code, if with any. */",
        "export function closeAction(code: number | undefined): CloseAction {",
        "  return closes[code ?? 0] ?? 'retry';",
        "}",
        "",
    ]
    return "\n".join(out)


def defaults(groups: tuple[Group, ...]) -> str:
    """The module `generated/defaults.ts`: the defaults of a client, as one object."""
    group = next(group for group in groups if group.name == "client")
    out = [header("//", "spec/defaults.yaml"), ""]
    out += [f"/** {group.doc}. */", f"export interface {group.title} {{"]
    for constant in group.constants:
        out += _constant_doc(constant, "  ")
        out.append(f"  readonly {camel(constant.name)}: number;")
    out += ["}", "", f"export const CLIENT: {group.title} = {{"]
    out += [f"  {camel(constant.name)}: {constant.value}," for constant in group.constants]
    return "\n".join([*out, "};", ""])


def limits(groups: tuple[Group, ...]) -> str:
    """The module `generated/limits.ts`: the limits of the service.

    Separate constants, so that a bundler keeps only those that a program uses.
    """
    group = next(group for group in groups if group.name == "limits")
    out = [header("//", "spec/defaults.yaml"), "", f"/** {group.doc}. */", ""]
    for constant in group.constants:
        out += _constant_doc(constant, "")
        out.append(f"export const {camel(constant.name)} = {constant.value};")
    return "\n".join([*out, ""])


def _constant_doc(constant: Constant, indent: str) -> list[str]:
    return [f"{indent}/** {constant.doc}. */"] if constant.doc else []


def _words(record: Record) -> list[str]:
    """The remedy, and the meaning if the client raises this error without a message."""
    return [record.remedy, record.meaning] if record.code in _SAID_ALONE else [record.remedy]

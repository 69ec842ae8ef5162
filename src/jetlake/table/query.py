"""SQL over streams by DuckDB: every stream that a query names is a table of its own name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from jetlake.table.errors import BadOption, TableError
from jetlake.table.options import parse_options
from jetlake.table.origin import Origin, open_origin
from jetlake.table.scan import Scan, scan_options

if TYPE_CHECKING:
    pass

# A query names streams and files, not Python's variables; and DuckDB fetches no extension for it.
_SETTINGS: dict[str, Any] = {"python_enable_replacements": False, "autoinstall_known_extensions": False}
_QUOTED = re.compile(r"('(?:[^']|'')*')|`([^`]+)`")


class BadQuery(TableError):
    """A query that DuckDB does not understand, or cannot answer."""


def named_streams(options: Mapping[str, str], query: str) -> list[str]:
    """The streams that a query names; as in SQL, case does not count."""
    with closing(open_origin(parse_options({"stream": "*", **options}))) as origin:
        names = origin.names()
    text = query.lower()
    named = [name for name in names if name.lower() in text]
    exact = [name for name in named if name in query]
    return exact if len({name.lower() for name in exact}) == len({name.lower() for name in named}) else named


@contextmanager
def answer(options: Mapping[str, str], query: str) -> Iterator[pa.RecordBatchReader]:
    """The rows of an answer, in record batches."""
    import duckdb

    try:
        with duckdb.connect(config=_SETTINGS) as connection:
            with suppress(duckdb.Error):  # without the extension that knows time zones, there is UTC alone
                connection.execute("SET TimeZone = 'UTC'")
            for name, scan in _tables(options, query).items():
                connection.register(name, scan.dataset())
            relation = connection.sql(_QUOTED.sub(_as_duckdb_quotes, query))
            if relation is None:
                raise BadQuery("the query gives no rows")
            yield pa.RecordBatchReader.from_stream(relation)
    except duckdb.Error as error:
        raise BadQuery(_first_line(str(error))) from None


def _tables(options: Mapping[str, str], query: str) -> dict[str, Scan]:
    tables: dict[str, Scan] = {}
    for name in named_streams(options, query):
        if name.lower() in map(str.lower, tables):
            raise BadOption(f"DuckDB does not tell {name} from another stream in other letters: use Spark")
        tables[name] = scan_options({**options, "stream": name})
    return tables


def _as_duckdb_quotes(found: re.Match[str]) -> str:
    """Names in backticks, as Spark has them, in DuckDB's quotes."""
    return found[1] if found[1] is not None else '"' + found[2].replace('"', '""') + '"'


def _first_line(text: str) -> str:
    """What went wrong, without the query and a pointer into it; or an error of ours that passed through DuckDB."""
    ours = re.findall(r"^(?:\w+\.)*jetlake\.\S+?: (.+)$", text, re.MULTILINE)
    return str(ours[-1]) if ours else text.strip().splitlines()[0]


class Changes:
    """Tells when the messages of some streams have changed."""

    def __init__(self, options: Mapping[str, str], streams: list[str]) -> None:
        more = {"stream": ",".join(streams)} if streams else {}
        self._origin = open_origin(parse_options({"stream": "*", **options, **more}))
        self._seen = self._state()

    def look(self) -> bool:
        """Whether something has changed since the last look."""
        before, self._seen = self._seen, self._state()
        return before != self._seen

    def _state(self) -> dict[str, Any]:
        self._origin.refresh()
        return {name: self._of(self._origin, name) for name in self._origin.streams()}

    @staticmethod
    def _of(origin: Origin, name: str) -> Any:
        bounds = origin.bounds(name)
        return bounds, origin.count(name, *bounds)

    def close(self) -> None:
        """Give back what is held."""
        self._origin.close()

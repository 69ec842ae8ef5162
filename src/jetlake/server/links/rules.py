"""What JetStream keeps from crossing a link: each side answers its own requests.

Plain `$JS.API` requests and keys never cross; the requests of another domain are asked for as `$JS.<domain>.API`. A hub
does not police this, so each side has to keep to it.
"""

from __future__ import annotations

from jetlake.broker.leaf import Rules
from jetlake.config import ServerOptions

_LOCAL = ("$JS.API.>", "$KV.>", "$OBJ.>", "$JETLAKE.API.>")
_OF_CLUSTERS = ("$JSC.>", "$NRG.>")


def leaf_rules(options: ServerOptions, account: str, is_system: bool, domain: str) -> Rules:
    """What does not cross to a server with this domain."""
    own = options.jetstream.domain if options.jetstream.enabled else ""
    if is_system and own == domain:
        return Rules()
    if not is_system and options.default_js_domain.get(account) == "":
        return Rules()
    local = (_OF_CLUSTERS if is_system else ()) + _LOCAL
    return Rules(local + ((f"$JS.{own}.API.>",) if own and own != domain else ()), local)

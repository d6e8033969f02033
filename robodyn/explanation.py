"""What a query would run, and why."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from robodyn.arguments import count, one_of
from robodyn.engines.protocol import METHODS, SUPPORT, methods_of
from robodyn.errors import UnavailableError
from robodyn.scheduler import BUILT_IN, current_table

if TYPE_CHECKING:
    from robodyn.dynamics import Dynamics

_MOST_STATES = 1 << 40


@dataclass(frozen=True)
class Explanation:
    """`engine` and `method` answer `query` for a batch, for a `reason`; `estimates`: seconds by method, where several
    were compared."""

    query: str
    batch: int
    engine: str
    method: str
    reason: str
    estimates: Mapping[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"{self.query}, batch {self.batch}: engine {self.engine!r}, method {self.method!r}: {self.reason}"]
        width = max(map(len, self.estimates), default=0)
        lines += [f"  {name:{width}}  {1e3 * seconds:.4g} ms" for name, seconds in self.estimates.items()]
        return "\n".join(lines)


def explain(dyn: Dynamics, query: str, batch: int) -> Explanation:
    """What `dyn` runs for a query of a batch (`Dynamics.explain`)."""
    one_of("query", query, tuple(SUPPORT))
    batch, engine = count("batch", batch, 1, _MOST_STATES), dyn.engine.name
    found = current_table().estimates(query, dyn.dtype.name, dyn.model, batch) if dyn._engine_asked == "auto" else {}
    if found:
        return _scheduled(dyn, query, batch, found)
    if engine not in SUPPORT[query]:
        answering = ", ".join(repr(name) for name in SUPPORT[query])
        raise UnavailableError(f"engine: {engine!r} does not answer {query!r}; engines that do: {answering}")
    if engine == "scan":
        return _scans(dyn, query, batch)
    from robodyn.dynamics import PLAIN_CALLS
    from robodyn.engines.cpu.generated import GeneratedCode
    from robodyn.engines.gpu.engine import GpuEngine

    method = _method(dyn, query)
    if engine == "reference":
        return Explanation(query, batch, engine, method, "bodies of one depth and joint kind step together, in NumPy")
    if query not in PLAIN_CALLS:
        return Explanation(query, batch, engine, method, "compiled when it is first asked")
    if isinstance(dyn.engine, GpuEngine):
        variant, why = dyn.engine.chooser.choose(dyn.plain_task(query), batch)
        return Explanation(query, batch, engine, method, f"kernel {str(variant)!r} on {dyn.engine.device.name}, {why}")
    code = dyn.program(query)
    assert isinstance(code, GeneratedCode)
    return Explanation(query, batch, engine, method, f"{code.mode} code, {code.operations} operations a state")


def _scheduled(dyn: Dynamics, query: str, batch: int, found: Mapping[str, float]) -> Explanation:
    """What the engine with the least estimate runs."""
    there = {}
    for name in found:
        with suppress(UnavailableError):  # measured once, and gone since
            there[name] = dyn.variant(engine=name)
    answering = next(iter(there.values()), None) or dyn.variant(engine=dyn.engine.name)
    inner = explain(answering, query, batch)
    elsewhere = found == BUILT_IN.estimates(query, dyn.dtype.name, dyn.model, batch)
    where = " (on another machine; `robodyn tune` measures this one)" if elsewhere else ""
    reason = f"the fastest of the engines measured nearest to this call{where}; {inner.reason}"
    return replace(inner, reason=reason, estimates={name: found[name] for name in there})


def _method(dyn: Dynamics, query: str) -> str:
    """What `method=` calls it, or the algorithm where there is no choice."""
    from robodyn.dynamics import PLAIN_CALLS

    if query == "forward_dynamics":
        return "crba" if dyn.model.has_mimic else "aba"
    if query == "inverse_dynamics_gradient":
        return "idsva" if dyn.plain_task(query).name.startswith("idsva") else "columns"
    if query in METHODS:
        return methods_of(query, dyn.engine.name)[0]
    return dyn.plain_task(query).name if query in PLAIN_CALLS else query


def _scans(dyn: Dynamics, query: str, batch: int) -> Explanation:
    from robodyn.chains import Scan
    from robodyn.engines.scan.costs import CHOICES, current_costs, estimates
    from robodyn.engines.scan.engine import ScanEngine

    assert isinstance(dyn.engine, ScanEngine)
    options, costs = dyn.engine.layout.options, current_costs()
    how = f"{options.layout} layout, {options.kernel} kernel, {options.operators} operators"
    asked = "inverse_dynamics" if query in ("bias_force", "gravity_force") else query
    if asked not in CHOICES:
        return Explanation(query, batch, "scan", "crba" if query == "mass_matrix" else "idsva", f"the only one; {how}")
    method = dyn.engine.method(Scan(asked), batch)
    found = estimates(costs, dyn.engine.layout, asked, batch)
    return Explanation(query, batch, "scan", method, f"the least estimate ({costs.source}); {how}", found)

"""Where the nodes of a graph are drawn: columns from left to right, edges that find their way.

A block (a layer, say) is laid out by its own edges alone, so that 30 equal layers are laid out
once. `networkx` gives the ranks; the order within a rank comes from a few barycenter sweeps, the
heights from least squares. Everything is deterministic. Knows nothing of tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import networkx as nx

__all__ = ["BOX", "DOT", "Drawing", "Route", "lay_out"]

BOX = (112.0, 56.0)
"""Width and height of a node that computes."""
DOT = (16.0, 16.0)
"""Of one that only looks at memory in another way."""

_GAP_X, _GAP_Y = 20.0, 14.0
_THIN = 6.0  # room that an edge takes which passes a rank
_SWEEPS = 6
_LANE_GAP, _MARGIN = 34.0, 18.0
_MANY = 1500  # nodes of one block: no model has so many, a broken file may

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Route:
    """An edge: from node to node (negative: from port ``-1 - source``), through these points."""

    source: int
    target: int
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Drawing:
    """A block as it is drawn; the origin is its upper left corner.

    Attributes
    ----------
    width, height : float
    centres : tuple of (x, y)
        Of the nodes.
    ports : tuple of (x, y)
        Where values from outside come in.
    routes : tuple of Route
    lanes : tuple of (x, y, width, height)
        One for each part of the block that stands on a line of its own.
    """

    width: float
    height: float
    centres: tuple[Point, ...]
    ports: tuple[Point, ...]
    routes: tuple[Route, ...]
    lanes: tuple[tuple[float, float, float, float], ...]


@lru_cache(maxsize=64)
def lay_out(
    small: tuple[bool, ...],
    lane: tuple[int, ...],
    edges: tuple[tuple[int, int], ...],
) -> Drawing:
    """Draw one block.

    Parameters
    ----------
    small : tuple of bool
        Which nodes are dots, in the order in which they are computed.
    lane : tuple of int
        The line of each node, counted from 0.
    edges : tuple of (int, int)
        Sources and targets; ``-1 - p`` is port p, a value from outside.
    """
    n_ports = max((-a for a, _ in edges if a < 0), default=0)
    if len(small) > _MANY:
        return _in_rows(len(small), n_ports)
    size = {i: DOT if s else BOX for i, s in enumerate(small)}
    size.update({-1 - p: (0.0, 2.0) for p in range(n_ports)})
    place: dict[int, Point] = {}
    paths: dict[tuple[int, int], list[Point]] = {}
    lanes: list[tuple[float, float, float, float]] = []
    top = 0.0
    for k in range(max(lane, default=-1) + 1):
        own = [i for i in range(len(small)) if lane[i] == k]
        if not own:
            continue
        inside = set(own)
        inner = [(a, b) for a, b in edges if b in inside and (a in inside or (a < 0 and k == 0))]
        ports = sorted({a for a, _ in inner if a < 0}, reverse=True)
        drawn, ways, width, height = _lane([*ports, *own], inner, size)
        for i, (x, y) in drawn.items():
            place[i] = (x + _MARGIN if i >= 0 else 0.0, y + top + _MARGIN)
        for edge, way in ways.items():
            paths[edge] = [(x + _MARGIN, y + top + _MARGIN) for x, y in way]
            if edge[0] < 0:
                paths[edge].insert(0, place[edge[0]])
        lanes.append((0.0, top, width + 2 * _MARGIN, height + 2 * _MARGIN))
        top += height + 2 * _MARGIN + _LANE_GAP
    width = max((w for _, _, w, _ in lanes), default=2 * _MARGIN)
    lanes = [(x, y, width, h) for x, y, _, h in lanes]
    for p in range(n_ports):  # a port whose value is used on later lines only
        place.setdefault(-1 - p, (0.0, _MARGIN + 8.0 * p))
    between = [e for e in edges if e not in paths]
    for count, (a, b) in enumerate(sorted(set(between), key=lambda e: (lane[e[1]], e))):
        paths[a, b] = _around(place, size, lanes, lane, (a, b), count)
    routes = tuple(Route(a, b, tuple(_rounded(paths[a, b]))) for a, b in dict.fromkeys(edges))
    return Drawing(
        width,
        max(top - _LANE_GAP, 2 * _MARGIN),
        tuple(_round(place[i]) for i in range(len(small))),
        tuple(_round(place[-1 - p]) for p in range(n_ports)),
        routes,
        tuple(lanes),
    )


def _in_rows(n: int, n_ports: int) -> Drawing:
    """Too many nodes to find ways between them: in rows, without edges."""
    wide = int(n**0.5) + 1
    step_x, step_y = BOX[0] + _GAP_X, BOX[1] + _GAP_Y
    places = [
        (_MARGIN + BOX[0] / 2 + (i % wide) * step_x, _MARGIN + BOX[1] / 2 + (i // wide) * step_y)
        for i in range(n)
    ]
    width, height = 2 * _MARGIN + wide * step_x, 2 * _MARGIN + (n // wide + 1) * step_y
    lane = ((0.0, 0.0, width, height),)
    return Drawing(width, height, tuple(places), ((0.0, _MARGIN),) * n_ports, (), lane)


def _rounded(points: Sequence[Point]) -> list[Point]:
    return [_round(p) for p in points]


def _round(p: Point) -> Point:
    return (round(p[0], 1), round(p[1], 1))


def _lane(
    nodes: list[int], edges: list[tuple[int, int]], size: dict[int, Point]
) -> tuple[dict[int, Point], dict[tuple[int, int], list[Point]], float, float]:
    """One line: places of its nodes, ways of its edges, width and height."""
    ranks = _ranks(nodes, edges)
    columns: list[list[object]] = [[] for _ in range(max(ranks.values(), default=0) + 1)]
    for i in nodes:
        columns[ranks[i]].append(i)
    chains: dict[tuple[int, int], list[object]] = {}
    before: dict[object, list[object]] = {}
    after: dict[object, list[object]] = {}
    for a, b in dict.fromkeys(edges):
        way: list[object] = [a]
        for rank in range(ranks[a] + 1, ranks[b]):
            bend = (a, rank)  # edges from one node share their way
            if bend not in columns[rank]:
                columns[rank].append(bend)
            way.append(bend)
        way.append(b)
        chains[a, b] = way
        for s, t in pairwise(way):
            if t not in after.setdefault(s, []):
                after[s].append(t)
                before.setdefault(t, []).append(s)
    _order(columns, before, after)
    height_of = {c: _THIN if isinstance(c, tuple) else size[c][1] for col in columns for c in col}  # type: ignore[index]
    y = _heights(columns, before, after, height_of)
    x: dict[object, float] = {}
    left = 0.0
    for column in columns:
        wide = max((size[c][0] for c in column if not isinstance(c, tuple)), default=0.0)  # type: ignore[index]
        for c in column:
            x[c] = left + wide / 2
        left += wide + _GAP_X
    low = min((y[c] - height_of[c] / 2 for c in y), default=0.0)
    high = max((y[c] + height_of[c] / 2 for c in y), default=0.0)
    ways = {}
    for (a, b), way in chains.items():
        points = [(x[a] + size[a][0] / 2, y[a] - low)]
        points += [(x[c], y[c] - low) for c in way[1:-1]]
        points.append((x[b] - size[b][0] / 2, y[b] - low))
        ways[a, b] = points
    return {i: (x[i], y[i] - low) for i in nodes}, ways, max(left - _GAP_X, 0.0), high - low


def _ranks(nodes: list[int], edges: list[tuple[int, int]]) -> dict[int, int]:
    """Longest path from the sources; a source stands right before its first reader."""
    graph: nx.DiGraph = nx.DiGraph()
    graph.add_nodes_from(nodes)
    graph.add_edges_from(edges)
    ranks = {i: r for r, some in enumerate(nx.topological_generations(graph)) for i in some}
    for i in nodes:
        readers = list(graph.successors(i))
        if i >= 0 and readers and not graph.in_degree(i):
            ranks[i] = min(ranks[r] for r in readers) - 1
    first = min(ranks.values(), default=0)
    return {i: r - first for i, r in ranks.items()}


def _order(
    columns: list[list[object]],
    before: dict[object, list[object]],
    after: dict[object, list[object]],
) -> None:
    """Fewer crossings: each column by the mean place of its neighbours, to and fro."""
    for sweep in range(_SWEEPS):
        forth = sweep % 2 == 0
        near = before if forth else after
        for k in range(len(columns)) if forth else range(len(columns) - 1, -1, -1):
            beside = columns[k - 1 if forth else min(k + 1, len(columns) - 1)]
            place = {c: i for i, c in enumerate(beside)}
            own = {c: i for i, c in enumerate(columns[k])}

            def mean(
                c: object, near: dict = near, place: dict = place, own: dict = own
            ) -> tuple[float, int]:
                at = [place[o] for o in near.get(c, ()) if o in place]
                return (sum(at) / len(at) if at else float(own[c]), own[c])

            columns[k].sort(key=mean)


def _heights(
    columns: list[list[object]],
    before: dict[object, list[object]],
    after: dict[object, list[object]],
    height: dict[object, float],
) -> dict[object, float]:
    """Centres: each as near to the mean of its neighbours as its column's order and room allow."""
    y: dict[object, float] = {}
    for column in columns:
        _settle(column, [0.0] * len(column), height, y)
    for sweep in range(_SWEEPS):
        forth = sweep % 2 == 0
        near = before if forth else after
        for column in columns if forth else reversed(columns):
            wish = []
            for c in column:
                at = [y[o] for o in near.get(c, ())]
                wish.append(sum(at) / len(at) if at else y[c])
            _settle(column, wish, height, y)
    return y


def _settle(
    column: list[object],
    wish: list[float],
    height: dict[object, float],
    y: dict[object, float],
) -> None:
    """Least squares under "not nearer than that": neighbours that collide move together."""
    shift, at = [], 0.0
    for i, c in enumerate(column):
        if i:
            at += (height[column[i - 1]] + height[c]) / 2 + _GAP_Y
        shift.append(at)
    pools: list[list[float]] = []  # [sum, count]
    for w, s in zip(wish, shift, strict=True):
        pools.append([w - s, 1])
        while len(pools) > 1 and pools[-2][0] / pools[-2][1] > pools[-1][0] / pools[-1][1]:
            total, count = pools.pop()
            pools[-1][0] += total
            pools[-1][1] += count
    i = 0
    for total, count in pools:
        for _ in range(int(count)):
            y[column[i]] = total / count + shift[i]
            i += 1


def _around(
    place: dict[int, Point],
    size: dict[int, Point],
    lanes: Sequence[tuple[float, float, float, float]],
    lane: tuple[int, ...],
    edge: tuple[int, int],
    count: int,
) -> list[Point]:
    """From the end of one line to another line: right, through the gap between, and in."""
    a, b = edge
    (xa, ya), (xb, yb) = place[a], place[b]
    start, end = xa + size[a][0] / 2, xb - size[b][0] / 2
    row = min(lane[b], len(lanes) - 1)
    above = lanes[row][1] - _LANE_GAP / 2 + 5.0 * (count % 3 - 1)
    if a < 0:
        return [
            (0.0, ya),
            (6.0, ya),
            (6.0, above),
            (end - 10.0, above),
            (end - 10.0, yb),
            (end, yb),
        ]
    out = start + 8.0 + 3.0 * (count % 3)
    return [(start, ya), (out, ya), (out, above), (end - 10.0, above), (end - 10.0, yb), (end, yb)]

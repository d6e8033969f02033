"""What rolled code calls besides steps: rows of arrays into vectors and back, zeros, couplings, sums."""

from __future__ import annotations

from robodyn.codegen.llvm.vectors import Lines, VectorType, load_row, same_places, store_row, transposed, vector_places


def _load_lanes(kind: VectorType) -> str:
    """W scalars at column %c of the rows at %rows, as %value."""
    if kind.width == 1:
        return f"""  %row0 = load ptr, ptr %rows
  %at0 = getelementptr {kind.scalar}, ptr %row0, i64 %c
  %value = load {kind.scalar}, ptr %at0, align 1
"""
    lines, value = [], "poison"
    for k in range(kind.width):
        name = "%value" if k == kind.width - 1 else f"%value{k}"
        lines += [
            f"  %slot{k} = getelementptr ptr, ptr %rows, i64 {k}",
            f"  %row{k} = load ptr, ptr %slot{k}",
            f"  %at{k} = getelementptr {kind.scalar}, ptr %row{k}, i64 %c",
            f"  %scalar{k} = load {kind.scalar}, ptr %at{k}, align 1",
            f"  {name} = insertelement {kind.name} {value}, {kind.scalar} %scalar{k}, i32 {k}",
        ]
        value = name
    return "\n".join(lines) + "\n"


def _store_lanes(kind: VectorType) -> str:
    """%value to column %c of the rows at %rows."""
    lines = []
    for k in range(kind.width):
        scalar = "%value"
        if kind.width > 1:
            scalar = f"%scalar{k}"
            lines.append(f"  {scalar} = extractelement {kind.name} %value, i32 {k}")
        lines += [
            f"  %slot{k} = getelementptr ptr, ptr %rows, i64 {k}",
            f"  %row{k} = load ptr, ptr %slot{k}",
            f"  %at{k} = getelementptr {kind.scalar}, ptr %row{k}, i64 %c",
            f"  store {kind.scalar} {scalar}, ptr %at{k}, align 1",
        ]
    return "\n".join(lines) + "\n"


def broadcast(kind: VectorType, value: str, name: str) -> str:
    """Lines that put a scalar into every state of a vector `name` (without the percent sign)."""
    if kind.width == 1:
        return f"  %{name} = fadd {kind.scalar} {value}, {kind.splat(-0.0)}\n"
    return (
        f"  %{name}.one = insertelement {kind.name} poison, {kind.scalar} {value}, i32 0\n"
        f"  %{name} = shufflevector {kind.name} %{name}.one, {kind.name} poison, "
        f"<{kind.width} x i32> zeroinitializer\n"
    )


def _row_pointers(kind: VectorType) -> str:
    """Function that writes where W rows begin; rows past the end are the last one again."""
    lines = []
    for k in range(kind.width):
        lines.append(
            f"""  %next{k} = add i64 %row, {k}
  %inside{k} = icmp slt i64 %next{k}, %end
  %chosen{k} = select i1 %inside{k}, i64 %next{k}, i64 %end
  %offset{k} = mul i64 %chosen{k}, %stride
  %at{k} = getelementptr i8, ptr %data, i64 %offset{k}
  %slot{k} = getelementptr ptr, ptr %rows, i64 {k}
  store ptr %at{k}, ptr %slot{k}
"""
        )
    return f"""define internal void @row_pointers(ptr %data, i64 %stride, i64 %row, i64 %end, ptr %rows) #0 {{
{"".join(lines)}  ret void
}}

"""


def counted(name: str, arguments: str, counter: str, body: str, entry: str = "") -> str:
    """A function that runs `body` for %{counter} = 0 .. %count - 1."""
    return f"""define internal void @{name}({arguments}, i64 %count) #0 {{
entry:
{entry}  %some = icmp sgt i64 %count, 0
  br i1 %some, label %loop, label %done
loop:
  %{counter} = phi i64 [ 0, %entry ], [ %{counter}.next, %loop ]
{body}  %{counter}.next = add i64 %{counter}, 1
  %more = icmp slt i64 %{counter}.next, %count
  br i1 %more, label %loop, label %done
done:
  ret void
}}

"""


def stage_packed(kind: VectorType) -> str:
    """stage_packed: stage_out of vectors that are where the numbers at %places say."""
    return _stage(kind, load=False, packed=True)


def _stage(kind: VectorType, *, load: bool, packed: bool = False) -> str:
    """stage_in, stage_out or stage_packed: W columns at a time, transposed in registers, then what is left one by one.

    Where W columns or more are left over from whole blocks, the last block goes over some again. Vectors of one state
    are a row as it is. Columns that are packed and all the same are zeros, and need no shuffles.
    """
    if kind.width == 1:
        return _copy(kind, load=load)
    T, W = kind.name, kind.width
    aligned = f"align {kind.itemsize}"
    out = Lines()
    rows = [out.new(f"load ptr, ptr {out.new(f'getelementptr ptr, ptr %rows, i64 {k}')}") for k in range(W)]
    rows = [out.new(f"getelementptr {kind.scalar}, ptr {row}, i64 %c") for row in rows]
    if packed:
        _store_zeros(out, kind, rows)
    places = vector_places(out, kind, "%c", W, packed=packed)
    if load:
        values = transposed(out, kind, [load_row(out, kind, row, W) for row in rows])
        for place, value in zip(places, values, strict=True):
            out.do(f"store {T} {value}, ptr {place}, {aligned}")
    else:
        values = [out.new(f"load {T}, ptr {place}, {aligned}") for place in places]
        for row, value in zip(rows, transposed(out, kind, values), strict=True):
            store_row(out, kind, value, row, W)
    if packed:
        out.lines += ["  br label %behind", "behind:"]
    block = "\n".join(out.lines)
    single = Lines()
    (place,) = vector_places(single, kind, "%c", 1, packed=packed)
    one = "\n".join(single.lines) + "\n"
    if load:
        one = _load_lanes(kind) + one + f"  store {T} %value, ptr {place}, {aligned}\n"
    else:
        one = one + f"  %value = load {T}, ptr {place}, {aligned}\n" + _store_lanes(kind)
    vectors = "ptr %vectors, ptr %places" if packed else "ptr %vectors"
    what = "in" if load else "packed" if packed else "out"
    columns = counted(f"stage_columns_{what}", f"ptr %rows, {vectors}", "c", one)
    return f"""{columns}\
define internal void @stage_{what}(ptr %data, i64 %stride, i64 %row, i64 %end, {vectors}, i64 %count) #0 {{
entry:
  %rows = alloca [{W} x ptr]
  call void @row_pointers(ptr %data, i64 %stride, i64 %row, i64 %end, ptr %rows)
  %whole = icmp sge i64 %count, {W}
  %last = sub i64 %count, {W}
  br i1 %whole, label %block, label %columns
block:
  %c = phi i64 [ 0, %entry ], [ %c.next, %{"behind" if packed else "block"} ]
{block}
  %far = add i64 %c, {W}
  %inside = icmp slt i64 %far, %last
  %c.next = select i1 %inside, i64 %far, i64 %last
  %more = icmp slt i64 %far, %count
  br i1 %more, label %block, label %done
columns:
  call void @stage_columns_{what}(ptr %rows, {vectors}, i64 %count)
  ret void
done:
  ret void
}}

"""


def _store_zeros(out: Lines, kind: VectorType, rows: list[str]) -> None:
    """Write zeros where the columns from %c on are in one place; what follows is for others."""
    out.lines += [f"  br i1 {same_places(out, kind)}, label %zeros, label %values", "zeros:"]
    for row in rows:
        out.do(f"store {kind.name} zeroinitializer, ptr {row}, align 1")
    out.lines += ["  br label %behind", "values:"]


def _copy(kind: VectorType, *, load: bool) -> str:
    """stage_in or stage_out of one state: large matrices are as quick to copy as memory allows."""
    to, source = ("%vectors", "%at") if load else ("%at", "%vectors")
    return f"""define internal void @{"stage_in" if load else "stage_out"}(ptr %data, i64 %stride, i64 %row, i64 %end, \
ptr %vectors, i64 %count) #0 {{
  %offset = mul i64 %row, %stride
  %at = getelementptr i8, ptr %data, i64 %offset
  %size = mul i64 %count, {kind.itemsize}
  call void @llvm.memcpy.p0.p0.i64(ptr {to}, ptr {source}, i64 %size, i1 false)
  ret void
}}

"""


def runtime_functions(kind: VectorType, callers: str) -> str:
    """The functions that some code calls, for vectors of a type: LLVM takes its time for others as well.

    - row_pointers(data, stride, row, end, rows): where W rows begin;
    - stage_in(data, stride, row, end, to, count): columns of W rows into vectors; stage_out the other way;
    - subtract(a, b, to, count): to[k] = a[k] - b[k];
    - couple(from, to, source, multiplier, offset, count): to[k] = multiplier[k] from[source[k]] + offset[k];
    - gather(from, to, pairs, weight, count): to[pairs[k][1]] += weight[k] from[pairs[k][0]];
    - add_diagonal(to, diagonal, count): to[k (count + 1)] += diagonal[k], numbers of the model;
    - add_given_diagonal: the same with vectors that are given.
    """
    T, S = kind.name, kind.scalar
    aligned = f"align {kind.itemsize}"
    anywhere = "align 1" if kind.width == 1 else aligned  # a matrix of one state may be the user's own
    subtract = f"""  %a.at = getelementptr {T}, ptr %a, i64 %k
  %a.value = load {T}, ptr %a.at, {aligned}
  %b.at = getelementptr {T}, ptr %b, i64 %k
  %b.value = load {T}, ptr %b.at, {aligned}
  %value = fsub {T} %a.value, %b.value
  %to.at = getelementptr {T}, ptr %to, i64 %k
  store {T} %value, ptr %to.at, {aligned}
"""
    couple = f"""  %source.at = getelementptr i64, ptr %source, i64 %k
  %from.index = load i64, ptr %source.at
  %from.at = getelementptr {T}, ptr %from, i64 %from.index
  %value = load {T}, ptr %from.at, {aligned}
  %multiplier.at = getelementptr {S}, ptr %multiplier, i64 %k
  %m = load {S}, ptr %multiplier.at
  %offset.at = getelementptr {S}, ptr %offset, i64 %k
  %o = load {S}, ptr %offset.at
{broadcast(kind, "%m", "factor")}{broadcast(kind, "%o", "shift")}\
  %result = call {T} @llvm.fmuladd.{kind.suffix}({T} %value, {T} %factor, {T} %shift)
  %to.at = getelementptr {T}, ptr %to, i64 %k
  store {T} %result, ptr %to.at, {aligned}
"""
    gather = f"""  %pair.at = getelementptr {{i64, i64}}, ptr %pairs, i64 %k
  %from.index = load i64, ptr %pair.at
  %second.at = getelementptr {{i64, i64}}, ptr %pairs, i64 %k, i32 1
  %to.index = load i64, ptr %second.at
  %from.at = getelementptr {T}, ptr %from, i64 %from.index
  %value = load {T}, ptr %from.at, {aligned}
  %weight.at = getelementptr {S}, ptr %weight, i64 %k
  %w = load {S}, ptr %weight.at
{broadcast(kind, "%w", "factor")}  %to.at = getelementptr {T}, ptr %to, i64 %to.index
  %before = load {T}, ptr %to.at, {aligned}
  %after = call {T} @llvm.fmuladd.{kind.suffix}({T} %value, {T} %factor, {T} %before)
  store {T} %after, ptr %to.at, {aligned}
"""
    own = f"""  %value.at = getelementptr {S}, ptr %diagonal, i64 %k
  %d = load {S}, ptr %value.at
{broadcast(kind, "%d", "added")}"""
    given = f"""  %value.at = getelementptr {T}, ptr %diagonal, i64 %k
  %added = load {T}, ptr %value.at, {anywhere}
"""
    diagonal = f"""  %columns = add i64 %count, 1
  %index = mul i64 %k, %columns
  %to.at = getelementptr {T}, ptr %to, i64 %index
  %before = load {T}, ptr %to.at, {anywhere}
  %after = fadd {T} %before, %added
  store {T} %after, ptr %to.at, {anywhere}
"""
    loops = {
        "subtract": ("ptr %a, ptr %b, ptr %to", subtract),
        "couple": ("ptr %from, ptr %to, ptr %source, ptr %multiplier, ptr %offset", couple),
        "gather": ("ptr %from, ptr %to, ptr %pairs, ptr %weight", gather),
        "add_diagonal": ("ptr %to, ptr %diagonal", own + diagonal),
        "add_given_diagonal": ("ptr %to, ptr %diagonal", given + diagonal),
    }
    functions = [counted(name, given, "k", body) for name, (given, body) in loops.items() if f"@{name}(" in callers]
    functions += [_stage(kind, load=load) for load in (True, False) if f"@stage_{'in' if load else 'out'}(" in callers]
    if "@row_pointers(" in callers or any("@row_pointers(" in function for function in functions):
        functions.append(_row_pointers(kind))
    return (
        "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)\ndeclare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)\n\n"
    ) + "".join(functions)

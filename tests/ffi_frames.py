"""Calls of XLA's foreign function interface made by hand: structs of xla/ffi/api/c_api.h, and an API behind them."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

P, I64, I32, SIZE = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32, ctypes.c_size_t


def struct(name: str, *fields: tuple[str, Any]) -> type[ctypes.Structure]:
    """A struct of that name in the header."""
    return type(name, (ctypes.Structure,), {"_fields_": list(fields)})


_HEAD = (("struct_size", SIZE), ("extension_start", P))
Version = struct("XLA_FFI_Api_Version", *_HEAD, ("major_version", I32), ("minor_version", I32))
ErrorCreate = struct("XLA_FFI_Error_Create_Args", *_HEAD, ("message", ctypes.c_char_p), ("errc", I32))
Buffer = struct("XLA_FFI_Buffer", *_HEAD, ("dtype", I32), ("data", P), ("rank", I64), ("dims", P))
Args = struct("XLA_FFI_Args", *_HEAD, ("size", I64), ("types", P), ("args", P))
Rets = struct("XLA_FFI_Rets", *_HEAD, ("size", I64), ("types", P), ("rets", P))
Attrs = struct("XLA_FFI_Attrs", *_HEAD, ("size", I64), ("types", P), ("names", P), ("attrs", P))
StreamGet = struct("XLA_FFI_Stream_Get_Args", *_HEAD, ("ctx", P), ("stream", P))
Metadata = struct("XLA_FFI_Metadata", ("struct_size", SIZE), ("api_version", Version), ("traits", ctypes.c_uint32))
Frame = struct(
    "XLA_FFI_CallFrame",
    *_HEAD,
    *(("api", P), ("ctx", P), ("stage", I32), ("args", Args), ("rets", Rets), ("attrs", Attrs)),
)
Extension = struct("XLA_FFI_Extension_Base", ("struct_size", SIZE), ("type", I32), ("next", P))
MetadataExtension = struct("XLA_FFI_Metadata_Extension", ("extension_base", Extension), ("metadata", P))
Api = struct(
    "XLA_FFI_Api",
    *_HEAD,
    ("api_version", Version),
    ("internal_api", P),
    *((f"XLA_FFI_{name}", P) for name in ("Error_Create", "Error_GetMessage", "Error_Destroy", "Handler_Register")),
    ("XLA_FFI_Stream_Get", P),
)
STRUCTS = (
    *(Version, ErrorCreate, Buffer, Args, Rets, Attrs, StreamGet, Metadata, Frame, Extension, MetadataExtension, Api),
)

_CREATE = ctypes.CFUNCTYPE(P, ctypes.POINTER(ErrorCreate))
_STREAM = ctypes.CFUNCTYPE(P, ctypes.POINTER(StreamGet))
_EXECUTE = 3
_DTYPES = {np.dtype(np.float32): 11, np.dtype(np.float64): 12}


class Caller:
    """Calls handlers as XLA does, on arrays in the processor's memory.

    Args:
        stream: what it says of the stream; where `error` is not 0, that the stream is not there.
    """

    def __init__(self, stream: int, error: int = 0) -> None:
        self.errors: list[tuple[str, int]] = []
        self.context = 0xC0

        def create(args: Any) -> int:
            self.errors.append((args.contents.message.decode(), args.contents.errc))
            return 0xBAD

        def get(args: Any) -> int:
            assert args.contents.ctx == self.context and args.contents.struct_size == ctypes.sizeof(StreamGet)
            args.contents.stream = stream
            return error

        self._functions = _CREATE(create), _STREAM(get)
        self._api = Api(struct_size=ctypes.sizeof(Api))
        self._api.XLA_FFI_Error_Create, self._api.XLA_FFI_Stream_Get = (
            ctypes.cast(each, P).value for each in self._functions
        )

    def frame(self, extension: Any = None) -> Any:
        """A frame without buffers."""
        frame = Frame(struct_size=ctypes.sizeof(Frame), api=ctypes.addressof(self._api), ctx=self.context)
        frame.stage = _EXECUTE
        if extension is not None:
            frame.extension_start = ctypes.addressof(extension)
        return frame

    def call(self, address: int, inputs: Any, outputs: Any) -> int | None:
        """What the handler returns."""
        frame, kept = self.frame(), []
        for part, arrays, name in ((frame.args, inputs, "args"), (frame.rets, outputs, "rets")):
            buffers = [self._buffer(array, kept) for array in arrays]
            table = (P * max(1, len(buffers)))(*(ctypes.addressof(each) for each in buffers))
            kept += [buffers, table]
            part.size = len(buffers)
            setattr(part, name, ctypes.addressof(table))
        found: int | None = ctypes.CFUNCTYPE(P, P)(address)(ctypes.addressof(frame))
        return found

    def described(self, address: int) -> tuple[int, int, int]:
        """The version and the traits that the handler says it has."""
        metadata = Metadata(struct_size=ctypes.sizeof(Metadata))
        metadata.api_version.major_version = -1
        extension = MetadataExtension(Extension(ctypes.sizeof(MetadataExtension), 1, None), ctypes.addressof(metadata))
        assert ctypes.CFUNCTYPE(P, P)(address)(ctypes.addressof(self.frame(extension))) is None
        version = metadata.api_version
        return version.major_version, version.minor_version, metadata.traits

    @staticmethod
    def _buffer(array: Any, kept: list[Any]) -> Any:
        dims = (I64 * max(1, array.ndim))(*array.shape)
        kept += [array, dims]
        places = {"data": array.ctypes.data, "dims": ctypes.addressof(dims)}
        return Buffer(struct_size=ctypes.sizeof(Buffer), dtype=_DTYPES[array.dtype], rank=array.ndim, **places)

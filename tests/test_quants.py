"""The block formats: against the `gguf` package, their integer form, and their packers."""

from __future__ import annotations

from collections.abc import Callable

import gguf
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from octavo import quants
from octavo.errors import FileFormatError, UnsupportedError
from octavo.gguf import ggml_types
from octavo.quants import _blocks, _codebook, _grids

FLOATS = ("bf16", "f16", "f32")

# Relative root-mean-square error on normal weights, about 3 % above what the packer reaches.
ERROR_LIMITS = {
    "bf16": 0.0018,
    "f16": 0.00025,
    "f32": 0.0,
    "iq1_m": 0.426,
    "iq1_s": 0.461,
    "iq2_s": 0.246,
    "iq2_xs": 0.293,
    "iq2_xxs": 0.338,
    "iq3_s": 0.134,
    "iq3_xxs": 0.183,
    "iq4_nl": 0.0756,
    "iq4_xs": 0.0764,
    "mxfp4": 0.115,
    "nvfp4": 0.086,
    "q2_k": 0.277,
    "q3_k": 0.148,
    "q4_0": 0.089,
    "q4_1": 0.081,
    "q4_k": 0.0733,
    "q5_0": 0.044,
    "q5_1": 0.039,
    "q5_k": 0.0369,
    "q6_k": 0.0181,
    "q8_0": 0.0056,
    "tq1_0": 0.448,
    "tq2_0": 0.448,
}
NAMES = tuple(ERROR_LIMITS)
BLOCK_NAMES = tuple(n for n in NAMES if n not in FLOATS)


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def gguf_unpack(name: str, data: NDArray[np.uint8]) -> NDArray[np.float32]:
    with np.errstate(all="ignore"):
        return gguf.dequantize(data, gguf.GGMLQuantizationType[name.upper()])


def gguf_pack(name: str, values: NDArray[np.float32]) -> NDArray[np.uint8]:
    packed = gguf.quantize(values, gguf.GGMLQuantizationType[name.upper()])
    return packed.view(np.uint8)


def any_bytes(name: str, n_blocks: int) -> NDArray[np.uint8]:
    """Noise: scales of every class (half-precision infinity and NaN are one in 32), and edges."""
    data = rng().integers(0, 256, (n_blocks, quants.get(name).block_bytes), dtype=np.uint8)
    data[0], data[1], data[2] = 0, 255, 128
    return data


def relative_error(got: NDArray[np.float32], expected: NDArray[np.float32]) -> float:
    difference = np.float64(1) * got - expected
    return float(np.sqrt(np.mean(difference**2) / np.mean(np.float64(1) * expected**2)))


def assert_same_bits(got: NDArray[np.float32], expected: NDArray[np.float32]) -> None:
    both_nan = np.isnan(got) & np.isnan(expected)
    same = got.view(np.uint32) == expected.view(np.uint32)
    assert (same | both_nan).all()


def test_every_format_of_the_list_is_there() -> None:
    assert quants.names() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_unpack_equals_gguf_bit_for_bit(name: str) -> None:
    form = quants.get(name)
    data = any_bytes(name, 2000)
    got = quants.unpack(name, data, (2000, form.block_elements))
    assert got.dtype == np.float32
    assert_same_bits(got, gguf_unpack(name, data))


@pytest.mark.parametrize("name", BLOCK_NAMES)
def test_integer_form_describes_the_same_weights(name: str) -> None:
    form = quants.get_block(name)
    data = quants.random_blocks(name, 300, rng(), 0.5)
    q, scale, offset = form.integer_form(data)
    assert q.shape == (300, form.block_elements)
    assert q.dtype == np.int16
    assert q.min() >= -128
    assert q.max() <= 127
    assert form.group_elements in (16, 32)
    assert scale.shape == (300, form.block_elements // form.group_elements)
    assert scale.dtype == np.float32

    weights = np.float64(1) * q * scale.repeat(form.group_elements, axis=1)
    if offset is not None:
        assert offset.shape == scale.shape
        assert offset.dtype == np.float32
        weights += offset.repeat(form.group_elements, axis=1)
    # An offset may cancel most of a product that was rounded before.
    np.testing.assert_allclose(gguf_unpack(name, data), weights, rtol=1e-7, atol=1e-6)


@pytest.mark.parametrize("name", BLOCK_NAMES)
def test_random_blocks_reach_the_ends_of_the_integers(name: str) -> None:
    """So that a kernel tested with them is tested with every code."""
    data = quants.random_blocks(name, 3000, rng(), 0.5)
    everything = any_bytes(name, 3000)
    if name == "tq2_0":  # its fourth code has no meaning
        everything = everything[:3] // 255
    seen = np.unique(quants.get_block(name).integer_form(data).q)
    with np.errstate(all="ignore"):
        possible = np.unique(quants.get_block(name).integer_form(everything).q)
    assert set(possible) <= set(seen)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("std", [0.02, 1.0])
def test_random_blocks_have_the_wanted_deviation(name: str, std: float) -> None:
    n_blocks = 200_000 // quants.get(name).block_elements
    data = quants.random_blocks(name, n_blocks, rng(), std)
    weights = quants.unpack(name, data, (n_blocks * quants.get(name).block_elements,))
    assert np.isfinite(weights).all()
    assert 0.95 * std < weights.std() < 1.05 * std
    assert abs(weights.mean()) < 0.12 * std


@pytest.mark.parametrize("name", NAMES)
def test_pack_keeps_normal_weights_within_the_limit(name: str) -> None:
    values = rng().standard_normal((16, 1024), np.float32)
    got = quants.unpack(name, quants.pack(name, values), values.shape)
    assert relative_error(got, values) <= ERROR_LIMITS[name]


@pytest.mark.parametrize("name", BLOCK_NAMES)
def test_pack_finds_weights_that_it_can_store(name: str) -> None:
    """Weights that came out of the format go back with less error than arbitrary ones."""
    data = quants.random_blocks(name, 8, rng(), 0.5)
    values = quants.unpack(name, data, (8, quants.get(name).block_elements))
    got = quants.unpack(name, quants.pack(name, values), values.shape)
    assert relative_error(got, values) < 0.9 * ERROR_LIMITS[name]


@pytest.mark.parametrize("name", ["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1"])
def test_pack_gives_the_bytes_of_gguf(name: str) -> None:
    values = rng().standard_normal((33, 256), np.float32)
    values[1] = 0
    values[2] = 1.5
    values[3] *= 1e-4
    np.testing.assert_array_equal(quants.pack(name, values), gguf_pack(name, values))


@pytest.mark.parametrize("name", ["mxfp4", "tq1_0", "tq2_0"])
def test_pack_is_no_worse_than_gguf(name: str) -> None:
    values = rng().standard_normal((33, 256), np.float32)
    ours = gguf_unpack(name, quants.pack(name, values))
    theirs = gguf_unpack(name, gguf_pack(name, values))
    assert relative_error(ours, values) <= relative_error(theirs, values)


@pytest.mark.parametrize("name", ["tq1_0", "tq2_0"])
def test_ternary_weights_come_back_exactly(name: str) -> None:
    values = np.float32(0.375) * rng().integers(-1, 2, (7, 256)).astype(np.float32)
    got = quants.unpack(name, quants.pack(name, values), values.shape)
    np.testing.assert_array_equal(got, values)


def spiked(values: NDArray[np.float32]) -> NDArray[np.float32]:
    values[:, ::37] *= 30
    return values


# A name, what it does to normal weights, and how much more than the limit the error may be.
UNUSUAL: dict[str, tuple[Callable[[NDArray[np.float32]], NDArray[np.float32]], float]] = {
    "positive": (np.abs, 1.0),
    "negative": (lambda v: -np.abs(v), 1.0),
    "small": (lambda v: v * np.float32(1e-3), 1.1),
    "large": (lambda v: v * np.float32(1e3), 1.1),
    "spikes": (spiked, 2.4),
}


@pytest.mark.parametrize("name", BLOCK_NAMES)
@pytest.mark.parametrize("kind", UNUSUAL)
def test_pack_handles_unusual_weights(name: str, kind: str) -> None:
    change, factor = UNUSUAL[kind]
    if name == "nvfp4" and kind == "small":
        factor = 3.5  # its scales end at 0.001; such tensors bring a scale of their own
    values = change(rng().standard_normal((4, 512), np.float32))
    got = quants.unpack(name, quants.pack(name, values), values.shape)
    assert relative_error(got, values) <= factor * ERROR_LIMITS[name]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [0.0, 1e-30, -1e-12])
def test_nothing_stays_next_to_nothing(name: str, value: float) -> None:
    values = np.full((2, 256), value, np.float32)
    got = quants.unpack(name, quants.pack(name, values), values.shape)
    assert np.abs(got).max() <= abs(value) * 1.01 + (0 if value == 0 else 1e-9)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("rows", [0, 1, 7, 33])
def test_shapes_and_single_blocks(name: str, rows: int) -> None:
    form = quants.get(name)
    row_elements = 3 * 256
    n_blocks = rows * row_elements // form.block_elements
    data = quants.random_blocks(name, n_blocks, rng(), 1.0)
    whole = quants.unpack(name, data, (rows, row_elements))
    assert whole.shape == (rows, row_elements)
    blocks = whole.reshape(n_blocks, form.block_elements)
    for i in range(0, n_blocks, max(1, n_blocks // 5)):
        np.testing.assert_array_equal(blocks[i], form.unpack(data[i : i + 1])[0])
    packed = quants.pack(name, whole[:7])
    row_bytes = row_elements // form.block_elements * form.block_bytes
    assert packed.shape == (min(rows, 7), row_bytes)
    assert packed.dtype == np.uint8


@pytest.mark.parametrize("name", ["f16", "q4_0", "q4_k"])
def test_long_tensors_go_in_pieces(name: str) -> None:
    values = rng().standard_normal((257, 768), np.float32)
    packed = quants.pack(name, values)
    got = quants.unpack(name, packed, (257, 3, 256))
    np.testing.assert_array_equal(got.reshape(257, 768), gguf_unpack(name, packed))
    assert relative_error(got.reshape(values.shape), values) <= ERROR_LIMITS[name]


def test_blocks_computed_by_hand() -> None:
    half_one = np.frombuffer(np.float16(1).tobytes(), np.uint8)
    q4_0 = np.concatenate([half_one, np.arange(16, dtype=np.uint8)])[None]
    expected = np.concatenate([np.arange(16) - 8, np.full(16, -8)])
    np.testing.assert_array_equal(quants.get("q4_0").unpack(q4_0)[0], expected)

    mxfp4 = np.array([[128] + 16 * [0x72]], np.uint8)
    expected = np.array(16 * [2.0] + 16 * [12.0]) * 1.0
    np.testing.assert_array_equal(quants.get("mxfp4").unpack(mxfp4)[0], expected)

    q6_k = np.zeros((1, 210), np.uint8)
    q6_k[0, 0], q6_k[0, 128] = 0x5A, 0b01_10_11_00  # weights 0, 32, 64, 96
    q6_k[0, 192:208] = 255  # every scale is -1
    q6_k[0, 208:] = half_one
    weights = quants.get("q6_k").unpack(q6_k)[0]
    np.testing.assert_array_equal(weights[[0, 1, 32, 64, 96]], [22, 32, -16, -5, 16])


def test_errors_say_what_is_wrong() -> None:
    with pytest.raises(UnsupportedError, match="block format 'q7_x' is not supported"):
        quants.get("q7_x")
    with pytest.raises(UnsupportedError, match="f16 holds plain floats"):
        quants.get_block("f16")
    with pytest.raises(UnsupportedError, match="A row of 100 values cannot be q4_k"):
        quants.pack("q4_k", np.zeros((2, 100), np.float32))
    with pytest.raises(UnsupportedError, match="A row of 1 values"):
        quants.unpack("q8_0", np.zeros(34, np.uint8), ())
    with pytest.raises(FileFormatError, match="have 35 bytes, expected 34"):
        quants.unpack("q8_0", np.zeros(35, np.uint8), (1, 32))
    for wrong in (np.nan, np.inf):
        with pytest.raises(FileFormatError, match="NaN or infinity, which q8_0"):
            quants.pack("q8_0", np.full((1, 32), wrong, np.float32))


@pytest.mark.parametrize("name", FLOATS)
def test_floats_keep_what_is_not_finite(name: str) -> None:
    values = np.array([np.nan, np.inf, -np.inf, -0.0, 1e30], np.float32)
    got = quants.unpack(name, quants.pack(name, values), values.shape)
    expected = values.copy()
    if name == "f16":
        expected[4] = np.inf
    np.testing.assert_allclose(got, expected, rtol=0.004)
    assert np.signbit(got[3])


@pytest.mark.parametrize("name", _grids.GRID_NAMES)
def test_codebooks_equal_gguf(name: str) -> None:
    theirs = getattr(gguf.quants, name.upper())
    theirs.init_grid()
    np.testing.assert_array_equal(quants.grid(name), theirs.grid.reshape(theirs.grid_shape))
    assert not quants.grid(name).flags.writeable


@pytest.mark.parametrize("name", _grids.GRID_NAMES)
def test_search_among_neighbours_is_nearly_exhaustive(name: str) -> None:
    book = _codebook.codebook(name)
    width = book.points.shape[1]
    vectors = rng().standard_normal((257, 1, width), np.float32)
    if name != "iq1_s":
        vectors = np.abs(vectors)
    scales = np.full(257, 2.0, np.float32) / np.abs(book.points).max()
    found = _codebook._nearest(vectors, scales, (book,), False, 16)[0]
    every = scales[:, None, None] * book.points[None]
    exhaustive = np.square(vectors - every).sum(axis=2).min(axis=1)
    reached = np.square(vectors - scales[:, None, None] * found).sum(axis=(1, 2))
    assert (reached >= exhaustive * 0.9999).all()
    assert reached.sum() < 1.03 * exhaustive.sum()


def test_sign_numbers_equal_gguf() -> None:
    theirs = np.frombuffer(gguf.quants.IQ2_XXS.ksigns, np.uint8)
    negative = np.unpackbits(theirs[:, None], axis=1, bitorder="little")
    np.testing.assert_array_equal(_grids.sign_table(), 1 - 2 * negative.astype(np.int8))


def test_identities_are_those_of_the_file_format() -> None:
    for name in NAMES:
        form, ggml = quants.get(name), ggml_types.by_name(name)
        assert (form.name, form.ggml_id) == (ggml.name, ggml.id)
        assert form.ggml_id == gguf.GGMLQuantizationType[name.upper()]
        sizes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(form.ggml_id)]
        assert (form.block_elements, form.block_bytes) == sizes


@given(
    n=st.integers(0, 5),
    runs=st.integers(1, 3),
    run=st.sampled_from([1, 4, 8, 16, 32, 64]),
    width=st.sampled_from([1, 2, 4]),
)
def test_bit_fields_survive(n: int, runs: int, run: int, width: int) -> None:
    data = rng().integers(0, 256, (n, runs * run), dtype=np.uint8)
    fields = _blocks.split_bits(data, run, width)
    assert fields.shape == (n, runs * run * 8 // width)
    assert n == 0 or fields.max() < 1 << width
    np.testing.assert_array_equal(_blocks.join_bits(fields, run, width), data)

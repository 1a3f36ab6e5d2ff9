"""Encoders compute what loops do, see every pixel and read every observation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import random

from tests.algos import reference
from tests.nn.test_networks import make, run
from thespis.nn.encoders import NATURE, SMALL, Conv, Encoder, features, image, pixels, width


def test_features_of_a_dict_of_vectors_and_images():
    floats, image = jax.ShapeDtypeStruct((3,), jnp.float32), jax.ShapeDtypeStruct((2, 2, 1), "u1")
    spec = {"vector": floats, "image": image, "time": jax.ShapeDtypeStruct((), jnp.int32)}
    obs = {
        "vector": np.float32([[1.0, -2.0, 300.0], [0.0, 0.5, 0.0]]),
        "image": np.uint8([[[[0], [51]], [[102], [255]]]] * 2),
        "time": np.int32([7, 9]),
    }
    read = reference.quick(lambda obs: features(spec, obs))
    out = np.asarray(read(obs))
    assert width(spec) == 8
    assert out.dtype == np.float32
    np.testing.assert_allclose(out[0], [0, 0.2, 0.4, 1, 7, 1, -2, 300], rtol=1e-6)
    one = jax.tree.map(lambda x: x[1], obs)
    np.testing.assert_array_equal(read(one), out[1])
    batch = jax.tree.map(lambda x: x[None], obs)
    np.testing.assert_array_equal(read(batch), out[None])


# --- images ---------------------------------------------------------------------------------


def convolved(x, weight, bias, stride):
    """A convolution of [h, w, c] by four loops."""
    size, out = weight.shape[0], weight.shape[3]
    rows, columns = (-(-(n - size) // stride) + 1 for n in x.shape[:2])
    x = np.pad(x, ((0, stride), (0, stride), (0, 0)))
    found = np.zeros((rows, columns, out))
    for i, j in np.ndindex(rows, columns):
        patch = x[i * stride : i * stride + size, j * stride : j * stride + size]
        found[i, j] = np.maximum((patch[..., None] * weight).sum((0, 1, 2)) + bias, 0)
    return found


def test_convolutions_compute_what_loops_do():
    net = make(Conv, (9, 8, 2), SMALL)
    x = np.random.default_rng(0).uniform(size=(3, 9, 8, 2))
    wanted = list(x)
    for weight, bias, stride in zip(net.weights, net.biases, net.strides):
        wanted = [convolved(y, np.float64(weight), np.float64(bias), stride) for y in wanted]
    found = run(net, np.float32(x))
    assert found.shape == (3, Conv.width((9, 8, 2), SMALL))
    np.testing.assert_allclose(found, np.stack(wanted).reshape(3, -1), atol=1e-5)


@pytest.mark.parametrize(
    ("size", "layers"), [((10, 10), SMALL), ((9, 8), SMALL), ((37, 40), NATURE)]
)
def test_every_pixel_is_seen_whatever_the_size_of_the_image(size, layers):
    @reference.quick
    def slope(x):
        net = jax.tree.map(jnp.abs, Conv(random.key(0), (*size, 1), layers))
        return jax.grad(lambda x: net(x).sum())(x)

    assert (np.asarray(slope(np.ones((*size, 1), np.float32))) > 0).all()


@pytest.mark.parametrize(
    ("shape", "wanted"),
    [
        ((10, 10, 1), (10, 10, 1)),
        ((84, 84), (84, 84, 1)),
        ((4, 84, 84), (84, 84, 4)),
        ((3, 64, 48), (64, 48, 3)),
        ((4, 10, 12, 3), (10, 12, 12)),
        ((4, 3, 10, 12), (10, 12, 12)),
        ((2, 2, 1), None),
        ((128,), None),
    ],
)
def test_images_are_recognised_whatever_the_order_of_their_axes(shape, wanted):
    assert image(jax.ShapeDtypeStruct(shape, jnp.uint8)) == wanted
    assert image(jax.ShapeDtypeStruct(shape, jnp.float32)) is None
    if wanted:
        x = jax.ShapeDtypeStruct((np.prod(shape),), jnp.float32)
        assert jax.eval_shape(lambda x: pixels(shape, x), x).shape == wanted


def test_frames_of_a_stack_are_channels():
    x = np.random.default_rng(0).uniform(size=(4, 8, 9, 3)).astype(np.float32)
    found = pixels(x.shape, jnp.asarray(x.reshape(-1)))
    np.testing.assert_array_equal(found, np.concatenate(list(x), -1))
    first = np.moveaxis(x, -1, 1)  # channels before pixels
    np.testing.assert_array_equal(pixels(first.shape, jnp.asarray(first.reshape(-1))), found)


def test_large_images_have_the_layers_of_nature():
    """As many numbers as in the paper: 7 x 7 x 64 of 84 x 84 pixels."""
    assert Conv.width((84, 84, 4), NATURE) == 3136


def test_vectors_pass_beside_the_features_of_images_and_skipped_leaves_do_not():
    spec = {
        "camera": jax.ShapeDtypeStruct((10, 10, 1), jnp.uint8),
        "speed": jax.ShapeDtypeStruct((2,), jnp.float32),
        "truth": jax.ShapeDtypeStruct((3,), jnp.float32),
    }
    net = make(Encoder, spec)
    x = np.random.default_rng(0).uniform(size=(4, 106)).astype(np.float32)  # one more
    n = Conv.width((10, 10, 1), SMALL)
    see = lambda x: (net(x), net(x, skip=(2,)), net.convs[0](x[:, :100].reshape(4, 10, 10, 1)))
    whole, part, convolved = map(np.asarray, reference.quick(see)(x))
    assert (whole.shape, part.shape) == ((4, n + 6), (4, n + 3))
    np.testing.assert_array_equal(whole[:, n:], x[:, 100:])
    np.testing.assert_array_equal(part[:, n:], x[:, [100, 101, 105]])
    np.testing.assert_array_equal(whole[:, :n], convolved)

"""Images and histograms of callbacks become what TensorBoard and trackers take."""

import io

import numpy as np
import pytest
from matplotlib.figure import Figure

from thespis.errors import ThespisError
from thespis.runs.pictures import histogram, image_value, pixels


def test_numbers_from_0_to_1_and_bytes_are_images_alike():
    grey = pixels("x", [[0.0, 0.5], [1.0, 7.0]])
    np.testing.assert_array_equal(grey[..., 0], [[0, 128], [255, 255]])
    assert (grey.shape, grey.dtype) == ((2, 2, 1), np.uint8)
    colour = np.random.default_rng(0).integers(0, 256, (4, 5, 3), np.uint8)
    np.testing.assert_array_equal(pixels("x", colour), colour)
    np.testing.assert_array_equal(pixels("x", np.array([[np.nan, True]]))[..., 0], [[0, 255]])


def test_a_figure_is_drawn():
    image = pixels("x", Figure(figsize=(0.4, 0.2), dpi=100, facecolor="red"))
    assert image.shape == (20, 40, 3)
    np.testing.assert_array_equal(image[10, 20], [255, 0, 0])


@pytest.mark.parametrize("wrong", [np.zeros(3), np.zeros((2, 2, 2)), np.zeros((0, 2)), "text"])
def test_what_is_no_image_is_refused_with_its_name(wrong):
    with pytest.raises(ThespisError, match=r"log_image\('x'\): .* is not an image: give \[height"):
        pixels("x", wrong)


def test_tensorboard_gets_the_very_pixels():
    pytest.importorskip("tensorboardX")
    from PIL import Image

    colour = np.random.default_rng(0).integers(0, 256, (4, 5, 3), np.uint8)
    value = image_value("x", colour)
    assert (value.tag, value.image.height, value.image.width) == ("x", 4, 5)
    stored = np.asarray(Image.open(io.BytesIO(value.image.encoded_image_string)))
    np.testing.assert_array_equal(stored, colour)


def test_histograms_count_what_is_finite():
    counts, edges = histogram("x", [0.0, 1.0, 1.0, np.nan, np.inf])
    assert (counts.sum(), edges[0], edges[-1], len(edges)) == (3, 0.0, 1.0, len(counts) + 1)
    for wrong in ([np.nan], ["a"], []):
        with pytest.raises(ThespisError, match=r"log_histogram\('x'\): there is no finite number"):
            histogram("x", wrong)

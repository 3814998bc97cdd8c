"""Wheels: a file name stands for tags, and names for one spelling."""

from images.wheels import normalised, wheel_tags


def test_a_wheels_name_stands_for_all_its_tags() -> None:
    url = "https://host/a/thing-1.0-cp311.cp312-abi3-manylinux2014_x86_64.manylinux_2_17_x86_64.whl"
    assert set(wheel_tags(url)) == {
        f"{python}-abi3-{platform}"
        for python in ("cp311", "cp312")
        for platform in ("manylinux2014_x86_64", "manylinux_2_17_x86_64")
    }


def test_names_have_one_spelling() -> None:
    assert {normalised(name) for name in ("Nvidia_ML.py", "nvidia-ml-py", "nvidia__ml--py")} == {"nvidia-ml-py"}

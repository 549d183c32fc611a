"""Junk at a node's port, measured with real processes."""

import json
from itertools import islice
from random import Random

import pytest
from click.testing import CliRunner

from sphtp_benchmarks.command import bench
from sphtp_benchmarks.flood.junk import FIRST_BYTES, SIZES, junk


def test_junk_is_of_all_kinds_and_sizes_and_the_same_again():
    datagrams = list(islice(junk(Random(1)), 2000))
    assert datagrams == list(islice(junk(Random(1)), 2000))
    assert {len(datagram) for datagram in datagrams} == set(SIZES)
    assert {datagram[0] for datagram in datagrams} >= set(FIRST_BYTES)


@pytest.mark.usefixtures("forked")
def test_a_flooded_node_answers_in_order_and_does_not_grow():
    arguments = ["flood", "--rate", "2000", "--rounds", "1", "--seconds", "0.5", "--json"]
    done = CliRunner().invoke(bench, arguments)
    assert done.exit_code == 0, done.output
    figures = json.loads(done.stdout)["results"]
    assert figures["junk_per_s"] > 0
    assert figures["messages"] > 0
    assert figures["growth_bytes"] < 20e6
    assert figures["slower"] > 0

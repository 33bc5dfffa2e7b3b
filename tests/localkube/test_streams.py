"""Logs, exec and port-forward over the wire, with a scripted node behind."""

import asyncio
import json
import struct
from contextlib import asynccontextmanager

import aiohttp
import pytest

from tests.localkube.manifests import pod


@pytest.fixture
def running(api, ns):
    api.post(ns + "/pods", pod())
    api.until(ns + "/pods/p", lambda p: p["status"]["phase"] == "Running")
    return ns + "/pods/p"


@asynccontextmanager
async def socket(api, path, *protocols):
    headers = {"Authorization": f"Bearer {api.token}"}
    async with (
        aiohttp.ClientSession(headers=headers, timeout=aiohttp.ClientTimeout(total=90)) as session,
        session.ws_connect(f"https://{api.address}{path}", protocols=protocols, ssl=api.context, max_msg_size=0) as ws,
    ):
        yield ws


async def exec_all(api, path, *protocols):
    frames = {}
    async with socket(api, path, *(protocols or ("v5.channel.k8s.io",))) as ws:
        async for message in ws:
            frames[message.data[0]] = frames.get(message.data[0], b"") + message.data[1:]
    return frames


# Logs


def test_a_log_is_plain_text_with_its_options(api, running):
    assert api.get(f"{running}/log").body == "line 0\nline 1\nline 2\n"
    assert api.get(f"{running}/log?tailLines=1&timestamps=true").body == "2026-01-01T00:00:00+00:00 line 2\n"


@pytest.mark.parametrize(
    ("query", "code", "text"),
    [
        ("container=zz", 400, "container zz is not valid for pod p"),
        ("previous=true", 400, 'previous terminated container "main" in pod "p" not found'),
        ("tailLines=-1", 422, "must be greater than or equal to 0"),
        ("tailLines=x", 400, "invalid syntax"),
        ("sinceTime=yesterday", 400, 'parsing time "yesterday"'),
    ],
)
def test_a_log_request_that_cannot_be_is_refused_with_a_status(api, running, query, code, text):
    answer = api.get(f"{running}/log?{query}")
    assert answer.code == code
    assert text in answer.message


def test_a_pod_of_two_containers_asks_which(api, ns):
    two = pod()
    two["spec"]["containers"].append({"name": "side", "image": "mlportal/python:1"})
    api.post(ns + "/pods", two)
    text = "a container name must be specified for pod p, choose one of: [main side]"
    assert api.get(ns + "/pods/p/log").message == text


def test_a_pod_without_a_node_has_an_empty_log(api, ns):
    api.post(ns + "/pods", pod(spec={"nodeSelector": {"no": "where"}}))
    assert api.get(ns + "/pods/p/log").code == 204


async def test_a_followed_log_streams_and_ends_with_the_client(api, cluster, running):
    stopped = cluster.node.stopped_logs
    async with (
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {api.token}"}) as session,
        session.get(f"https://{api.address}{running}/log?follow=true", ssl=api.context) as response,
    ):
        assert await asyncio.wait_for(response.content.readline(), 90) == b"line 0\n"
    for _ in range(4000):
        if cluster.node.stopped_logs > stopped:
            return
        await asyncio.sleep(0.02)
    pytest.fail("the node still follows a log that nobody reads")


# exec


@pytest.mark.parametrize("protocol", ["v4.channel.k8s.io", "v5.channel.k8s.io"])
async def test_exec_gives_both_outputs_and_the_outcome(api, running, protocol):
    frames = await exec_all(api, f"{running}/exec?command=echo&command=a&command=b&stdout=1&stderr=1", protocol)
    assert (frames[1], frames[2]) == (b"a b", b"said")
    assert json.loads(frames[3]) == {"metadata": {}, "status": "Success"}


async def test_exec_leaves_out_what_was_not_asked_for(api, running):
    frames = await exec_all(api, f"{running}/exec?command=echo&command=a&stdout=1")
    assert 2 not in frames


async def test_an_exit_code_comes_as_the_cause_that_clients_read(api, running):
    frames = await exec_all(api, f"{running}/exec?command=exit&command=3&stdout=1")
    outcome = json.loads(frames[3])
    assert outcome["reason"] == "NonZeroExitCode"
    assert outcome["details"]["causes"] == [{"reason": "ExitCode", "message": "3"}]


async def test_input_and_size_reach_the_command_and_v5_closes_its_input(api, running):
    path = f"{running}/exec?command=cat&stdin=1&stdout=1&tty=1"
    async with socket(api, path, "v5.channel.k8s.io") as ws:
        await ws.send_bytes(b"\x00hello")
        assert (await ws.receive()).data == b"\x01hello"
        await ws.send_bytes(b'\x04{"Width":80,"Height":24}')
        assert (await ws.receive()).data == b"\x0180x24"
        await ws.send_bytes(b"\xff\x00")
        assert json.loads((await ws.receive()).data[1:])["status"] == "Success"


async def test_a_client_that_goes_ends_the_command(api, cluster, running):
    async with socket(api, f"{running}/exec?command=cat&stdin=1&stdout=1", "v5.channel.k8s.io") as ws:
        await ws.send_bytes(b"\x00x")
        await ws.receive()
    session = cluster.node.sessions[-1]
    for _ in range(4000):
        if session.closed:
            return
        await asyncio.sleep(0.02)
    pytest.fail("the command outlived its client")


@pytest.mark.parametrize(
    ("query", "headers", "code"),
    [
        ("stdout=1", {"Upgrade": "websocket"}, 400),
        ("command=a", {"Upgrade": "websocket"}, 400),
        ("command=a&stdout=1", {}, 400),
        ("command=a&stdout=1", {"Upgrade": "SPDY/3.1", "Connection": "Upgrade"}, 501),
        ("command=a&stdout=1&container=zz", {}, 400),
    ],
)
def test_exec_requests_that_cannot_be_are_refused(api, running, query, headers, code):
    assert api.request("GET", f"{running}/exec?{query}", headers=headers).code == code


# port-forward


async def test_a_port_is_forwarded_by_channels(api, running):
    async with socket(api, f"{running}/portforward?ports=7777", "v4.channel.k8s.io") as ws:
        for channel in (0, 1):
            assert (await ws.receive()).data == bytes((channel,)) + struct.pack("<H", 7777)
        await ws.send_bytes(b"\x00ping")
        assert (await ws.receive()).data == b"\x00ping"


async def test_a_port_that_nothing_listens_on_says_so_on_its_error_channel(api, running):
    async with socket(api, f"{running}/portforward?ports=1", "v4.channel.k8s.io") as ws:
        await ws.receive()
        await ws.receive()
        message = (await ws.receive()).data
    assert message[0] == 1
    assert b"error forwarding port 1 to pod p" in message
    assert b"connection refused" in message.lower()


def test_forwarding_to_a_pod_that_does_not_run_is_refused(api, ns):
    api.post(ns + "/pods", pod(annotations={"fake/hold": ""}))
    api.until(ns + "/pods/p", lambda p: p["spec"].get("nodeName"))
    answer = api.request("GET", ns + "/pods/p/portforward?ports=1", headers={"Upgrade": "websocket"})
    assert answer.message == "unable to forward port because pod is not running. Current status=Pending"

"""Settings of the gateway's sockets."""

from __future__ import annotations

import socket


def keep_alive(sock: socket.socket | None) -> None:
    """Ask the other end for a sign of life: a web socket may be silent for hours, a dead line must not be kept."""
    if sock is None or sock.family == socket.AF_UNIX:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)

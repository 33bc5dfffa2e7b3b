"""The entrance's SSH server: authentication by public key, ``direct-tcpip`` to one's own instances, nothing else."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Iterable
from typing import Any, Final
from uuid import UUID

import asyncssh
from asyncssh import constants

from apps.core.control import in_thread, sleep
from apps.core.errors import PortalError
from apps.instances.sshgate import doors, limits, way
from apps.instances.sshgate.doors import Door, Person
from apps.instances.sshgate.way import Conduit
from kubekit.errors import KubeError

log = logging.getLogger(__name__)

VERSION: Final = "mlportal"
LOGIN_S: Final = 30
#: A connection whose other end has gone is found after this, seconds between two signs of life and how many may miss.
ALIVE_S, ALIVE_COUNT = 30, 4
#: A channel through which nothing went for this long is closed, and a connection that has had no channel for this long.
IDLE_S: Final = 12 * 3600.0
EMPTY_S: Final = 60.0
#: How long the end may take, for the database to write down who was there.
CLOSE_S: Final = 10.0
LOOK_S: Final = 1.0
"""How often open channels are held against the database, as long as there are any."""
WINDOW: Final = 1 << 20
PACKET: Final = 64 << 10
#: Bytes on their way into an instance above which the person's side is told to wait.
HIGH: Final = 256 << 10
#: AES-GCM first: one call of the library for each packet.
CIPHERS: Final = (
    "aes128-gcm@openssh.com",
    "aes256-gcm@openssh.com",
    "chacha20-poly1305@openssh.com",
    "aes256-ctr",
    "aes128-ctr",
)
PLAIN: Final = str.maketrans({"“": '"', "”": '"', "’": "'"})
"""OpenSSH shows what is not ASCII in a refusal by its numbers."""
GREETING: Final = (
    "Hello {name}. This is the entrance to your instances, and there is no shell here.\r\n"
    "Go on to one of them:  ssh -J {name}@THIS-ADDRESS user@NAME   or   portalctl ssh NAME\r\n"
)


class Through(asyncssh.SSHTCPSession[bytes]):
    """One channel, and the conduit behind it. Each side waits for the other; nothing else waits for either."""

    def __init__(self, gate: Gate, door: Door, conduit: Conduit) -> None:
        self.gate, self.door, self._conduit = gate, door, conduit
        self.began = self.moved_at = time.monotonic()
        self.sent = self.received = 0
        self.why = "closed by the person"
        self._chan: Any = None
        self._waiting: deque[bytes] = deque()
        self._held = 0
        self._ended = False
        self._news = asyncio.Event()
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._tasks: list[asyncio.Task[None]] = []

    # --- what asyncssh calls

    def connection_made(self, chan: Any) -> None:
        self._chan = chan

    def session_started(self) -> None:
        self._tasks = [asyncio.create_task(self._inward()), asyncio.create_task(self._outward())]

    def data_received(self, data: bytes, datatype: Any) -> None:
        self._waiting.append(data)
        self._held += len(data)
        if self._held > HIGH:
            self._chan.pause_reading()
        self._news.set()

    def eof_received(self) -> bool:
        """``ssh`` closes its side when it has ended; what the instance still says is of no use to anybody."""
        self._ended = True
        self._news.set()
        return True

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    def connection_lost(self, exc: Exception | None) -> None:
        for task in self._tasks:
            task.cancel()
        self.gate.ended(self)

    # --- the two directions

    async def _inward(self) -> None:
        try:
            while True:
                await self._news.wait()
                self._news.clear()
                while self._waiting:
                    pieces = b"".join(self._waiting)
                    self._waiting.clear()
                    await self._conduit.write(pieces)
                    self.sent += len(pieces)
                    self.moved_at = time.monotonic()
                    self._held -= len(pieces)
                    if self._held <= HIGH // 2:
                        self._chan.resume_reading()
                if self._ended:
                    break
        except (KubeError, OSError) as error:
            self.end(f"the way into the instance broke off: {error}")
        else:
            self._chan.close()

    async def _outward(self) -> None:
        try:
            while data := await self._conduit.read():
                await self._may_write.wait()
                self._chan.write(data)
                self.received += len(data)
                self.moved_at = time.monotonic()
        except (KubeError, OSError) as error:
            self.end(f"the way from the instance broke off: {error}")
            return
        self.why = "closed by the instance"
        self._chan.write_eof()
        self._chan.close()

    def end(self, why: str) -> None:
        """Close the channel for a reason that is not the person's."""
        self.why = why[:200]
        if self._chan is not None:
            self._chan.abort()

    async def let_go(self) -> None:
        """Close the conduit; when the channel has gone."""
        try:
            await self._conduit.close()
        except (KubeError, OSError) as error:
            log.info("closing the way to %s: %s", self.door.pod, error)


class Guest(asyncssh.SSHServer):
    """One connection: who it is and what they have open."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.address = ""
        self.person: Person | None = None
        self.channels: set[Through] = set()
        self.opening = 0
        self.gone = False
        self.turned_out = ""
        self.empty_since = time.monotonic()
        self._known: Person | None = None
        self._conn: Any = None
        self._username = ""
        self._offers = 0
        self._is_stranger = False

    # --- what asyncssh calls

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._conn = conn
        self.address = str(conn.get_extra_info("peername")[0]).removeprefix("::ffff:")
        self._is_stranger = self.gate.let_near(self)
        if not self._is_stranger:
            conn.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone = True
        self._no_stranger()
        if self.person is not None:
            self.gate.goes(self)

    def begin_auth(self, username: str) -> bool:
        self._username = username
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    async def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        """Asked for each key that the client offers, and again for the one that it signs with."""
        fingerprint = key.get_fingerprint()
        if self._known is not None and self._known.fingerprint == fingerprint:
            return True
        self._offers += 1
        if self._offers > limits.OFFERS:
            reason = f"more than {limits.OFFERS} keys were offered; say which one with IdentityFile and IdentitiesOnly"
            self._conn.disconnect(constants.DISC_NO_MORE_AUTH_METHODS_AVAILABLE, reason)
            return False
        self._known = await in_thread(doors.admit, username, fingerprint, self.address)
        if self._known is None:
            self.gate.wrong.note(self.address, time.monotonic())
        return self._known is not None

    def auth_completed(self) -> None:
        assert self._known is not None
        self._no_stranger()
        self.person = self._known
        if not self.gate.comes(self):
            self.person = None
            reason = f"you have {limits.CONNECTIONS_OF_A_PERSON} connections open; close one"
            self._conn.disconnect(constants.DISC_TOO_MANY_CONNECTIONS, reason)

    def session_requested(self) -> Any:
        """No shell, but whoever tries a key hears that it works."""
        return self._greet

    async def _greet(self, _stdin: Any, stdout: Any, _stderr: Any) -> None:
        stdout.write(GREETING.format(name=self._username))
        stdout.channel.exit(1)

    def connection_requested(self, dest_host: str, dest_port: int, orig_host: str, orig_port: int) -> Any:
        return self._conn.create_tcp_channel(window=WINDOW, max_pktsize=PACKET), self._open(dest_host)

    def unix_connection_requested(self, dest_path: str) -> Any:
        raise _refused("there are no sockets here; name one of your instances")

    # --- a channel

    async def _open(self, wanted: str) -> asyncssh.SSHTCPSession[bytes]:
        person = self.person
        if person is None:
            raise _refused("this connection is ending")
        if len(self.channels) + self.opening >= limits.CHANNELS_OF_A_CONNECTION:
            raise _refused(f"this connection has {limits.CHANNELS_OF_A_CONNECTION} channels open; close one")
        self.opening += 1
        self.gate.opening += 1
        try:
            door = await in_thread(doors.open_to, person, wanted)
            conduit = await self.gate.ways.to(door)
            await in_thread(doors.entered, person, door)
        except PortalError as refusal:
            raise _refused(f"{refusal.detail} {refusal.next}".strip().translate(PLAIN)) from refusal
        except (KubeError, OSError, TimeoutError) as error:
            log.info("no way to %s: %s", wanted, error)
            raise asyncssh.ChannelOpenError(constants.OPEN_CONNECT_FAILED, way.why_not(error)) from error
        except Exception as error:
            log.exception("opening the way to an instance failed")
            raise asyncssh.ChannelOpenError(
                constants.OPEN_CONNECT_FAILED, "the portal made a mistake; it is in its log"
            ) from error
        finally:
            self.opening -= 1
            self.gate.opening -= 1
        through = Through(self.gate, door, conduit)
        if self.gone:
            # The connection ended while the way was being opened: nobody will ever tell `through` so.
            through.why = self.turned_out or through.why
            self.gate.never_began(person, through)
            raise _refused("this connection has ended")
        self.channels.add(through)
        self.gate.began(self, through)
        return through

    def turn_out(self, why: str) -> None:
        """End the connection and all that is open through it."""
        self.turned_out = why
        for through in list(self.channels):
            through.why = why
        self._conn.disconnect(constants.DISC_BY_APPLICATION, why)

    def _no_stranger(self) -> None:
        if self._is_stranger:
            self._is_stranger = False
            self.gate.strangers.give_back(self.address)


def _refused(sentence: str) -> asyncssh.ChannelOpenError:
    return asyncssh.ChannelOpenError(constants.OPEN_ADMINISTRATIVELY_PROHIBITED, sentence)


class Gate:
    """Everything that the connections of this process share."""

    def __init__(self) -> None:
        self.ways = way.Ways()
        self.wrong = limits.Wrong()
        self.strangers = limits.Counts()
        self._people = limits.Counts()
        self._guests: set[Guest] = set()
        self._owners: dict[Through, Guest] = {}
        self._work: set[asyncio.Task[None]] = set()
        self.opening = 0
        self.used_at = time.monotonic()

    # --- connections

    def let_near(self, guest: Guest) -> bool:
        """Whether somebody from this address may say who they are."""
        self.used_at = time.monotonic()
        if self.wrong.too_many(guest.address, self.used_at) or self.strangers.total >= limits.STRANGERS:
            return False
        return self.strangers.take(guest.address, limits.STRANGERS_OF_AN_ADDRESS)

    def comes(self, guest: Guest) -> bool:
        """A connection has said who it is; False when that person has too many."""
        assert guest.person is not None
        if not self._people.take(str(guest.person.actor.user_id), limits.CONNECTIONS_OF_A_PERSON):
            return False
        self._guests.add(guest)
        self._soon(in_thread(doors.note_use, guest.person))
        return True

    def goes(self, guest: Guest) -> None:
        """A connection of a person has ended."""
        assert guest.person is not None
        self._guests.discard(guest)
        self._people.give_back(str(guest.person.actor.user_id))
        self.used_at = time.monotonic()

    # --- channels

    def began(self, guest: Guest, through: Through) -> None:
        """A channel is open."""
        self._owners[through] = guest

    def ended(self, through: Through) -> None:
        """A channel has gone: let go of what was behind it, and write down what it was."""
        guest = self._owners.pop(through, None)
        if guest is None or guest.person is None:
            return
        guest.channels.discard(through)
        if not guest.channels:
            guest.empty_since = time.monotonic()
        self.never_began(guest.person, through)

    def never_began(self, person: Person, through: Through) -> None:
        """The same for one that nobody is at the other end of."""
        self._soon(through.let_go())
        self._soon(in_thread(_note_left, person, through))

    def _soon(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(_logged(work))
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    # --- over time

    async def watch(self, stop: asyncio.Event) -> None:
        """Close what may no longer be open, every second; with nothing open this asks nobody anything."""
        while not await sleep(stop, LOOK_S):
            try:
                await self._look()
            except Exception:  # the database may be away: the next round looks again
                log.exception("what is open could not be held against the database")

    async def _look(self) -> None:
        now = time.monotonic()
        for guest in list(self._guests):
            if not guest.channels and not guest.opening and now - guest.empty_since > EMPTY_S:
                guest.turn_out("nothing was opened for a minute")
        if not self._owners:
            return
        throughs = dict(self._owners)
        await self._close_ended(throughs)
        for through in throughs:
            if now - through.moved_at > IDLE_S:
                through.end("nothing went through it for twelve hours")
        keys = {guest.person.key_id for guest in throughs.values() if guest.person is not None}
        gone = keys - await in_thread(doors.still_known, keys)
        for guest in set(throughs.values()):
            if guest.person is not None and guest.person.key_id in gone:
                guest.turn_out("this key is no longer registered, or the account is closed")

    async def _close_ended(self, throughs: Iterable[Through]) -> None:
        launches: set[tuple[UUID, int]] = {(one.door.instance_id, one.door.launch) for one in throughs}
        alive = await in_thread(doors.still_open, launches)
        for through in throughs:
            if (through.door.instance_id, through.door.launch) not in alive:
                through.end("the instance was stopped or deleted")

    @property
    def quiet_s(self) -> float:
        """Seconds since there was anybody; 0 while there is."""
        return 0.0 if self._guests or self.strangers.total else time.monotonic() - self.used_at

    async def close(self) -> None:
        """Turn everybody out and wait until what they did is written down."""
        for guest in list(self._guests):
            guest.turn_out("the entrance is being restarted; connect again")
        try:
            async with asyncio.timeout(CLOSE_S):
                while self._work or self._owners or self.opening:
                    await asyncio.wait({*self._work, asyncio.ensure_future(asyncio.sleep(0.02))})
        except TimeoutError:
            log.warning("the end of %d connections could not be written down in time", len(self._owners))
        await self.ways.close()


def _note_left(person: Person, through: Through) -> None:
    seconds = time.monotonic() - through.began
    doors.left(person, through.door, seconds=seconds, sent=through.sent, received=through.received, why=through.why)


async def _logged(work: Awaitable[None]) -> None:
    try:
        await work
    except Exception:  # an entry of the audit log that could not be written, say: said, and the rest goes on
        log.exception("the entrance could not finish a piece of work")


async def listen(gate: Gate, sock: Any, host_key: asyncssh.SSHKey) -> asyncssh.SSHAcceptor:
    """Serve connections on a listening socket."""
    return await asyncssh.listen(
        sock=sock,
        server_factory=lambda: Guest(gate),
        server_host_keys=[host_key],
        server_version=VERSION,
        encryption_algs=CIPHERS,
        compression_algs=["none"],
        login_timeout=LOGIN_S,
        keepalive_interval=ALIVE_S,
        keepalive_count_max=ALIVE_COUNT,
        password_auth=False,
        kbdint_auth=False,
        host_based_auth=False,
        gss_host=None,
        allow_pty=False,
        agent_forwarding=False,
        x11_forwarding=False,
        tcp_keepalive=True,
    )

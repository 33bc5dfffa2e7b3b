"""Forty origins that are not an instance's own (F41)."""

from __future__ import annotations

TEMPLATES = """\
null
http://evil.test
https://evil.test
http://{name}.evil.test
http://{name}.evil.test:{port}
http://evil{name}:{port}
http://evil-{name}:{port}
http://x.{name}:{port}
http://{name}.:{port}
http://{name}:{port}.evil.test
http://{name}:{port}@evil.test
http://evil.test@{name}:{port}
http://evil.test/{name}:{port}
http://evil.test#{name}:{port}
http://evil.test?{name}:{port}
http://evil.test\\{name}:{port}
http://{name}:{port}/
http://{name}:{port}/lab
http://{name}:{port}?
http://{name}:{port}#
http://{name}:{port}0
http://{name}:1{port}
http://{name}:0
http://{name}
https://{name}
ftp://{name}:{port}
file://{name}:{port}
ws://{name}:{port}
//{name}:{port}
{name}:{port}
http://{upper}:{port}
http://{sibling}:{port}
https://{sibling}:{port}
http://{parent}:{port}
http://127.0.0.1:{port}
http://[::1]:{port}
http://localhost:{port}
http://xn--{name}:{port}
http://{name}:{port} http://evil.test
http:{name}:{port}
"""


def origins(host: str) -> list[str]:
    """All of them for this host; none is the host's own."""
    name, _, port = host.partition(":")
    parent = name.partition(".")[2]
    sibling = f"i-{'0' * 31}1.{parent}"
    made = [
        template.format(name=name, port=port, upper=name.upper(), sibling=sibling, parent=parent)
        for template in TEMPLATES.splitlines()
    ]
    assert len(set(made)) == 40, len(set(made))
    return made

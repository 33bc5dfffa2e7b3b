"""Causes in the image: not there, not allowed, registry away."""

from __future__ import annotations

import re

from kubekit.diagnose.model import Context, Finding, ended_container, lines, strip

#: In order: "no such host" and "404 Not Found" both contain words of other causes.
_TEXTS = tuple(
    (re.compile(pattern, re.IGNORECASE), code, following)
    for pattern, code, following in (
        (r"no such host|server misbehaving|connection refused|no route to host|network is unreachable|i/o timeout|"
         r"TLS handshake|tls: |x509|reset by peer", "registry_unreachable", "wait_or_tell_admin"),
        (r"unauthorized|authentication required|access denied|access forbidden|denied|\b40[13]\b",
         "image_denied", "fix_image_access"),
        (r"not found|manifest unknown|does not exist|no such image|name unknown|\b404\b",
         "image_not_found", "fix_image"),
        (r"timeout|timed out|deadline exceeded|\bEOF\b|\b(429|50[0234])\b",
         "registry_unreachable", "wait_or_tell_admin"),
    )
)  # fmt: skip
_BACK_OFF = re.compile(r'^Back-off pulling image "[^"]*"(?:: ErrImagePull)?(?:: )?')
#: Events that only repeat the container's reason.
_BARE = re.compile(r"Error: (?:ErrImagePull|ImagePullBackOff)|(?:ErrImagePull|ImagePullBackOff)")
_LONGEST_TEXT = 4000
#: At the end of what was said: a program may well print it and go on.
_OTHER_PROCESSOR = re.compile(r"exec format error[^\n]*\s*\Z", re.IGNORECASE)
_PULL_REASONS = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError"}
)


def image_trouble(context: Context) -> Finding | None:
    containers = context.pod.containers if context.pod is not None else ()
    # What is copied into the pod first comes from an image of its own.
    main = next((one for one in containers if one.state == "waiting" and one.reason in _PULL_REASONS), None)
    if main is None:
        return None
    # Kubelets put the cause behind "Back-off pulling image ...:", older ones only into an event.
    told = [note.message for note in reversed(context.recent) if note.reason in ("Failed", "ErrImageNeverPull")]
    said = [_BACK_OFF.sub("", main.message), *(_BACK_OFF.sub("", text) for text in told)]
    text = next((row for row in said if row.strip() and not _BARE.fullmatch(row)), main.message)
    code, following = classify_pull(main.reason, text)
    image = main.image if main.init else context.image or main.image
    return Finding(code=code, params={"image": image}, evidence=strip(text), next=following)


def other_processor(context: Context) -> Finding | None:
    """The image's programs are for another architecture: runtimes say so when they execute one, our entrypoint too."""
    ended, pod = ended_container(context), context.pod
    main = pod.main if pod is not None else None
    if pod is None or main is None or pod.ready:
        return None
    said = [main.message, *((ended.message, context.log_tail) if ended is not None else ())]
    text = next((text for text in said if _OTHER_PROCESSOR.search(text[-_LONGEST_TEXT:])), None)
    if text is None:
        return None
    params = {"image": context.image or main.image}
    return Finding(code="image_architecture", params=params, evidence=lines(text), next="fix_image")


def classify_pull(reason: str, text: str) -> tuple[str, str]:
    """(code, next) of a failed pull, from the container's reason and the runtime's text.

    Registries hide whether a private image exists ("does not exist or may require authorization"); that reads as not
    found, the likelier cause, unless a 401 or 403 stands beside it.
    """
    if reason == "InvalidImageName":
        return "image_name_invalid", "fix_image"
    if reason == "ErrImageNeverPull":
        return "image_not_found", "fix_image"
    # Names in quotes are the image's or an address: "team/app:404" must not be read as an answer.
    plain = re.sub(r'"[^"]*"', "", text[:_LONGEST_TEXT])
    if "may require" in plain and not re.search(r"unauthorized|\b40[13]\b", plain, re.IGNORECASE):
        return "image_not_found", "fix_image"
    for pattern, code, following in _TEXTS:
        if pattern.search(plain):
            return code, following
    return "image_pull_failed", "fix_image"

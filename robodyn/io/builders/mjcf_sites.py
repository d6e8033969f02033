"""Sites of a mjModel as links: frames that are fixed to the links of their bodies."""

from __future__ import annotations

from collections.abc import Sequence

from robodyn.core.description import Joint, Link, Pose
from robodyn.core.findings import Notes
from robodyn.internals.messages import quoted
from robodyn.io.builders.assemble import unused_name
from robodyn.io.builders.mjcf_frames import rotation, three
from robodyn.io.builders.mjmodel import MjArrays


def frames_of_sites(
    arrays: MjArrays,
    sites: Sequence[str],
    left_out: set[int],
    bodies: Sequence[str],
    links: set[str],
    joints: set[str],
    notes: Notes,
) -> dict[int, tuple[Link, Joint]]:
    """A massless link and its fixed joint for each named site, by the site's index.

    Args:
        arrays: arrays of the mjModel.
        sites: names of all sites, "" for sites without a name.
        left_out: indices of sites that are ends of equalities.
        bodies: link name of each body.
        links: names of all other links.
        joints: names of all joints. The names of new joints are added.
        notes: collects findings on omitted and renamed sites.
    """
    frames: dict[int, tuple[Link, Joint]] = {}
    taken = {*links, *sites}
    for s, site in enumerate(sites):
        if not site.strip() or s in left_out:
            continue
        name = site
        if site in links:
            name = unused_name(f"{site}_site", taken)
            message = f"a link has its name; the link of the site is called {quoted(name)}"
            notes.add("mjcf-site", f"site {quoted(site)}", message)
        body = bodies[arrays.number("site_bodyid", s, "nbody")]
        pose = Pose(three(arrays["site_pos"][s]), rotation(arrays["site_quat"][s]))
        joint = Joint(unused_name(f"{name}_fixed", joints), "fixed", body, name, pose)
        frames[s] = (Link(name), joint)
    unnamed = sum(1 for site in sites if not site.strip())
    if unnamed:
        notes.add("mjcf-site", "sites", f"{unnamed} of them have no name, and are left out")
    for s in sorted(left_out):
        notes.gather("mjcf-site", f"site {quoted(sites[s])}", "the end of an equality, which is left out as a link")
    return frames

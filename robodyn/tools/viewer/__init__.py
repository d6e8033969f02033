"""Shows robots in a browser by viser: `robodyn.show`, `robodyn view FILE` and `Rollout.save_html`.

viser (the extra "viewer") is imported when something is shown. `shapes` and `visuals` compute what is drawn, `scene`
passes it to viser, and `view` has the object that users get.
"""

enum FocusScripts {
    /// Begins a walk: gives the focus to a new last element of the page, or of an open dialog, and returns that element.
    static let goToEnd = """
        window.focusWalk = { reached: new Set(), last: null };
        const end = document.createElement("span");
        end.tabIndex = 0;
        (document.querySelector("dialog:modal") ?? document.body).append(end);
        end.focus();
        return end;
        """

    private static let selector = """
        const selectorOf = element => {
            if (element.id) return "#" + CSS.escape(element.id);
            const name = element.localName;
            const wanted = ["name", "href", "value"].find(key => element.hasAttribute(key));
            const own = wanted ? name + "[" + wanted + "=" + JSON.stringify(element.getAttribute(wanted)) + "]" : name;
            if (document.querySelectorAll(own).length === 1 || !element.parentElement) return own;
            const alike = Array.from(element.parentElement.children).filter(child => child.localName === name);
            const place = alike.length > 1 ? name + ":nth-of-type(" + (alike.indexOf(element) + 1) + ")" : name;
            return selectorOf(element.parentElement) + " > " + place;
        };
        """

    /// Returns what has the focus (null: nothing in the page), and how the element that had it before is shown without it.
    static let focus =
        selector + """
            const styles = element => {
                const seen = {};
                const take = (place, other, pseudo) => {
                    if (!other) return;
                    for (const animation of other.getAnimations()) {
                        try { animation.finish(); } catch { animation.cancel(); }
                    }
                    const style = getComputedStyle(other, pseudo);
                    if (pseudo && style.content === "none") return;
                    const clear = colour => colour === "transparent" || /, 0\\)$|\\/ 0\\)$/.test(colour);
                    const line = (width, kind, colour) =>
                        kind === "none" || width === "0px" || clear(colour) ? "none" : [width, kind, colour].join(" ");
                    seen[place + "outline"] = line(style.outlineWidth, style.outlineStyle, style.outlineColor);
                    seen[place + "box-shadow"] = style.boxShadow;
                    for (const side of ["Top", "Right", "Bottom", "Left"])
                        seen[place + "border-" + side.toLowerCase()] = line(style["border" + side + "Width"],
                            style["border" + side + "Style"], style["border" + side + "Color"]);
                    seen[place + "background"] = style.backgroundColor + " " + style.backgroundImage;
                    seen[place + "text-decoration"] = style.textDecorationLine + " " + style.textDecorationThickness;
                };
                take("", element);
                take("before ", element, "::before");
                take("after ", element, "::after");
                for (const label of element.labels ?? []) take("label ", label);
                take("parent ", element.parentElement);
                return seen;
            };
            const walk = window.focusWalk ??= { reached: new Set(), last: null };
            const before = walk.last ? styles(walk.last) : null;
            const element = document.activeElement;
            if (!element || element === document.body || element === document.documentElement) {
                walk.last = null;
                return { before, element: null, isSame: false, isKnown: false };
            }
            const isSame = walk.last === element, isKnown = walk.reached.has(element);
            walk.last = element;
            walk.reached.add(element);
            const rect = element.getClientRects()[0] ?? element.getBoundingClientRect();
            const over = document.elementFromPoint(rect.left + rect.width / 2, rect.top + rect.height / 2);
            const own = over && (element.contains(over) || over.contains(element)
                || Array.from(element.labels ?? []).some(label => label.contains(over)));
            let fixed = false;
            for (let up = element; up; up = up.parentElement)
                if (["fixed", "sticky"].includes(getComputedStyle(up).position)) fixed = true;
            const whole = element.getBoundingClientRect();
            return {
                before, element, isSame, isKnown,
                selector: selectorOf(element), now: styles(element), isFixed: fixed, isCovered: !own,
                box: { left: whole.left + scrollX, top: whole.top + scrollY, width: whole.width, height: whole.height },
            };
            """

    /// Returns selectors of what should have had the focus in this walk, and had not.
    static let missed =
        selector + """
            const reached = Array.from(window.focusWalk?.reached ?? []);
            const native = "a[href], area[href], button, input:not([type=hidden]), select, textarea, iframe, "
                + "summary:first-of-type, audio[controls], video[controls], [contenteditable='']"
                + ", [contenteditable=true]";
            const roles = ["button", "link", "checkbox", "switch", "radio", "tab", "option", "menuitem", "textbox",
                "combobox", "slider", "spinbutton", "searchbox", "treeitem"].map(role => `[role=${role}]`).join();
            const groups = "[role=menu], [role=menubar], [role=listbox], [role=tablist], [role=radiogroup], "
                + "[role=tree], [role=grid], [role=toolbar]";
            const dialog = document.querySelector("dialog:modal");
            return Array.from(document.querySelectorAll(`${native}, ${roles}, [tabindex], [onclick]`)).filter(element => {
                if (reached.includes(element)) return false;
                if (!element.matches(`${native}, ${roles}, [onclick]`) && element.tabIndex < 0) return false;
                if (element.matches(":disabled") || element.closest("[inert]")) return false;
                if (dialog && !dialog.contains(element)) return false;
                if (!element.checkVisibility({ visibilityProperty: true }) || !element.getClientRects().length)
                    return false;
                // Of these one alone is reached by Tab, the others by arrows.
                if (element.type === "radio" && reached.some(other =>
                    other.type === "radio" && other.name === element.name && other.form === element.form)) return false;
                const group = element.closest(groups);
                return !(group && reached.some(other => group.contains(other)));
            }).map(selectorOf);
            """
}

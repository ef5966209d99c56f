// Nothing: the package manager calls a dependency unused that no target names a product of, and what only other packages need
// is named in the manifest so that its version does not float.

"""The method cells of the notebooks: each rule on a case small enough to check by hand."""

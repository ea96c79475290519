"""Equations of the paper that several notebooks show, in LaTeX."""

GROUP_ADVANTAGE = (
    r"\tilde{A}^{(j)}=\frac{R^{(j)}-\mathrm{mean}(R^{(1)},\dots,R^{(G)})}"
    r"{\mathrm{std}(R^{(1)},\dots,R^{(G)})}"
)  # Eq. 4
CLIP_HIGHER = (
    r"\mathcal{L}(\theta)=\mathbb{E}\left[\frac{1}{\sum_{j=1}^{M} T_j}"
    r"\sum_{j=1}^{M}\sum_{t=1}^{T_j}\min\left(r_t^{(j)}\tilde{A}^{(j)},"
    r"\mathrm{clip}(r_t^{(j)},1-\epsilon_l,1+\epsilon_h)\tilde{A}^{(j)}\right)\right]"
)  # Eq. 7
SFT = (
    r"\mathcal{L}_{\mathrm{SFT}}=-\frac{1}{N}\sum_{j=1}^{N}"
    r"\sum_{t=1}^{T_j}\log\pi_\theta(y_t^{(j)}\mid x^{(j)},y_{<t}^{(j)})"
)  # Eq. 8, with log pi, where the paper prints pi

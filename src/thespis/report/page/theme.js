try { const theme = localStorage.getItem("thespis-theme"); if (theme) document.documentElement.dataset.theme = theme; } catch {}

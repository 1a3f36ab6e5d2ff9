"""A callback for runs of several processes."""

import numpy as np

import thespis


class Tamper(thespis.Callback):
    """Watches, changes hyper-parameters, logs, and ends the run."""

    every = 30

    def on_start(self, training):
        assert training.policy(0)(np.zeros(3, np.float32)).shape == (1,)

    def on_step(self, training):
        rates = training.hypers["critic_lr"]
        training.set_hyper(critic_lr=rates * (1 + np.arange(training.members)), gamma=0.9)
        training.log("mine/rate", rates)
        if training.step == 90:
            training.stop("enough")

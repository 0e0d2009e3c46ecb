kill $(cat /tmp/demo-real.pid); sleep 1
(PYTHONPATH=/tmp/demo nohup /tmp/demo/.venv/bin/python -m tests.envtest.serve --directory /tmp/demo-real > /tmp/demo-real.log 2>&1 & echo $! > /tmp/demo-real.pid)
until grep -q export /tmp/demo-real.log; do sleep 0.3; done

"""Files of a pipeline, for the tests of lint and render."""

from __future__ import annotations

STAGE = """\
apiVersion: kargo.akuity.io/v1alpha1
kind: Stage
metadata: {name: prod, namespace: shop}
spec:
  vars:
    - name: tag
      value: ${{ imageFrom("ghcr.io/example/shop").Tag }}
    - name: password
      value: ${{ secret('creds').password }}
  requestedFreight:
    - origin: {kind: Warehouse, name: shop}
      sources: {direct: true}
  promotionTemplate:
    spec:
      vars:
        - name: region
          value: ${{ configMap('settings').region }}
      steps:
        - uses: compose-output
          as: compose
          if: ${{ success() && vars.region == 'eu' }}
          config:
            tag: ${{ quote(vars.tag) }}
            token: ${{ toBase64(vars.password) }}
        - task: {name: deploy}
          as: deploy
          vars:
            - name: app
              value: shop-${{ ctx.stage }}
        - uses: fail
          if: ${{ status('compose') == 'Failed' }}
          config: {message: "${{ vars.tag }}"}
        - uses: argocd-wait
          as: last
          config:
            apps:
              - name: ${{ outputs.deploy.name }}
"""
TASK = """\
apiVersion: kargo.akuity.io/v1alpha1
kind: PromotionTask
metadata: {name: deploy, namespace: shop}
spec:
  vars: [{name: app}]
  steps:
    - uses: compose-output
      as: names
      config: {name: "${{ vars.app }}"}
    - uses: argocd-update
      as: sync
      config:
        apps:
          - name: ${{ task.outputs.names.name }}
            sources:
              - repoURL: https://git.example.com/shop.git
                desiredRevision: ${{ commitFrom('https://git.example.com/shop.git').ID }}
                helm:
                  images: [{key: image.tag, value: "${{ outputs.compose.tag }}"}]
"""
DATA = """\
apiVersion: v1
kind: Secret
metadata: {name: creds, namespace: shop}
stringData: {password: hunter2-very-secret}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: shop}
data: {region: eu}
"""
FREIGHT = """\
apiVersion: kargo.akuity.io/v1alpha1
kind: Freight
metadata: {name: abc123, namespace: shop}
alias: old-lobster
origin: {kind: Warehouse, name: shop}
images: [{repoURL: ghcr.io/example/shop, tag: "1.30"}]
commits: [{repoURL: https://git.example.com/shop.git, id: "1234567e10"}]
"""
PROMOTION = """\
apiVersion: kargo.akuity.io/v1alpha1
kind: Promotion
metadata: {name: prod.1, namespace: shop}
spec: {stage: prod, freight: abc123}
"""
WHOLE = {"stage": STAGE, "task": TASK, "data": DATA, "freight": FREIGHT, "promotion": PROMOTION}
SECRET = "hunter2-very-secret"
